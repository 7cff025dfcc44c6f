"""A small library whose tests cover it well: the ground for bugs that tests put into it."""

from __future__ import annotations

from collections.abc import Mapping

STOCK = '''"""What is in stock."""


class Stock:
    """Counts of articles by name."""

    def __init__(self, counts=None):
        if counts is None:
            counts = {}
        self.counts = dict(counts)

    def add(self, name, number=1):
        """Put some in."""
        if number <= 0:
            raise ValueError("number has to be positive")
        self.counts[name] = self.counts.get(name, 0) + number

    def take(self, name, number=1):
        """Take some out; False when there are too few."""
        left = self.counts.get(name, 0)
        if left < number:
            return False
        self.counts[name] = left - number
        return True

    def rare(self, limit):
        """Names of which there are fewer than that, in order."""
        found = []
        for name, count in self.counts.items():
            if count < limit:
                found.append(name)
        return sorted(found)
'''

PRICE = '''"""What things cost."""


def discounted(price, percent):
    """The price with so much off, never below zero."""
    if percent < 0 or percent > 100:
        raise ValueError("percent is from 0 to 100")
    return max(price - price * percent / 100, 0)


def total(lines, shipping=5, free_from=50):
    """The sum of (price, number) with shipping, which is free from some sum on."""
    result = 0
    for price, number in lines:
        result += price * number
    if result >= free_from:
        return result
    return result + shipping


def split(amount, parts):
    """Whole parts of an amount that differ by one at most, the larger ones first."""
    small = amount // parts
    rest = amount % parts
    return [small + 1] * rest + [small] * (parts - rest)
'''

STOCK_TESTS = '''"""Tests of the stock."""

import pytest

from shop.stock import Stock


def test_add():
    stock = Stock()
    stock.add("nut")
    stock.add("nut", 2)
    assert stock.counts == {"nut": 3}


def test_stocks_are_apart():
    Stock().add("nut")
    assert Stock().counts == {}


@pytest.mark.parametrize("number", [0, -1])
def test_add_nothing(number):
    with pytest.raises(ValueError):
        Stock().add("nut", number)


def test_take():
    stock = Stock({"nut": 3})
    assert stock.take("nut", 2)
    assert stock.counts == {"nut": 1}


def test_take_the_last():
    stock = Stock({"nut": 1})
    assert stock.take("nut")
    assert not stock.take("nut")


def test_take_what_is_not_there():
    assert Stock().take("nut") is False


def test_rare():
    assert Stock({"nut": 3, "bolt": 1, "cog": 2}).rare(3) == ["bolt", "cog"]
'''

PRICE_TESTS = '''"""Tests of prices."""

import pytest

from shop.price import discounted, split, total


@pytest.mark.parametrize("percent, price", [(0, 80), (25, 60), (100, 0)])
def test_discounted(percent, price):
    assert discounted(80, percent) == price


@pytest.mark.parametrize("percent", [-1, 101])
def test_discounted_by_nonsense(percent):
    with pytest.raises(ValueError):
        discounted(80, percent)


def test_total_with_shipping():
    assert total([(10, 2), (5, 1)]) == 30


def test_total_without_shipping():
    assert total([(25, 2)]) == 50


def test_total_of_nothing():
    assert total([]) == 5


def test_split():
    assert split(10, 4) == [3, 3, 2, 2]


def test_split_evenly():
    assert split(9, 3) == [3, 3, 3]
'''

FILES: Mapping[str, str] = {
    "README.md": "# shop\n",
    "shop/__init__.py": '"""A shop."""\n',
    "shop/stock.py": STOCK,
    "shop/price.py": PRICE,
    "tests/test_stock.py": STOCK_TESTS,
    "tests/test_price.py": PRICE_TESTS,
}

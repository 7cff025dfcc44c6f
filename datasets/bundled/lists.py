"""Bundled functions on lists: indexing, slicing, folding, filtering."""

from .functions import define

LISTS = (
    define("largest(numbers)", "return max(numbers)", "[1, 5, 3]", "[-1, -5]", "[7]"),
    define("smallest(numbers)", "return min(numbers)", "[4, 2, 3]", "[-1, -5]", "[7]"),
    define("total(numbers)", "return sum(numbers)", "[1, 2, 3]", "[5]", "[]"),
    define("mean(numbers)", "return sum(numbers) / len(numbers)", "[2, 4]", "[3]", "[1, 1, 4]"),
    define("count_items(items)", "return len(items)", "[1, 2, 3]", "['a']", "[]"),
    define("first_item(items)", "return items[0]", "[7, 8, 9]", "['a', 'b']", "[1, 1]"),
    define("second_item(items)", "return items[1]", "[7, 8, 9]", "['a', 'b']", "[1, 1]"),
    define("last_item(items)", "return items[-1]", "[7, 8, 9]", "['a', 'b']", "[1, 1]"),
    define("middle_item(items)", "return items[len(items) // 2]", "[7, 8, 9]", "[5]", "[4, 4, 4]"),
    define("without_first(items)", "return items[1:]", "[1, 2, 3]", "['a', 'b']", "[5]"),
    define("without_last(items)", "return items[:-1]", "[1, 2, 3]", "['a', 'b']", "[5]"),
    define("first_n(items, n)", "return items[:n]", "[1, 2, 3], 2", "['a', 'b'], 1", "[5], 0"),
    define("skip_n(items, n)", "return items[n:]", "[1, 2, 3], 2", "['a', 'b'], 1", "[5], 0"),
    define("every_second(items)", "return items[::2]", "[1, 2, 3, 4]", "[5, 6, 7]", "[8]"),
    define("swap_pair(pair)", "return [pair[1], pair[0]]", "[1, 2]", "['a', 'b']", "[3, 3]"),
    define(
        "first_and_last(items)", "return [items[0], items[-1]]", "[1, 2, 3]", "['a', 'b']", "[5]"
    ),
    define("append_item(items, item)", "return items + [item]", "[1], 2", "[], 3", "['a'], 'b'"),
    define("prepend_item(items, item)", "return [item] + items", "[1], 2", "[], 3", "['a'], 'b'"),
    define("sort_ascending(numbers)", "return sorted(numbers)", "[3, 1, 2]", "[1, 2]", "[]"),
    define(
        "sort_descending(numbers)",
        "return sorted(numbers, reverse=True)",
        "[3, 1, 2]",
        "[1, 2]",
        "[4, 4]",
    ),
    define("is_sorted(numbers)", "return numbers == sorted(numbers)", "[1, 2, 3]", "[2, 1]", "[]"),
    define(
        "spread(numbers)", "return max(numbers) - min(numbers)", "[1, 5, 3]", "[2, 2]", "[-1, 1]"
    ),
    define(
        "second_largest(numbers)", "return sorted(numbers)[-2]", "[1, 5, 3]", "[4, 2]", "[6, 6]"
    ),
    define(
        "evens(numbers)", "return [n for n in numbers if n % 2 == 0]", "[1, 2, 3, 4]", "[5]", "[6]"
    ),
    define(
        "odds(numbers)", "return [n for n in numbers if n % 2 == 1]", "[1, 2, 3, 4]", "[5]", "[6]"
    ),
    define(
        "positives(numbers)", "return [n for n in numbers if n > 0]", "[1, -2, 0]", "[-3]", "[4]"
    ),
    define(
        "negatives(numbers)", "return [n for n in numbers if n < 0]", "[1, -2, 0]", "[-3]", "[4]"
    ),
    define(
        "numbers_above(numbers, limit)",
        "return [n for n in numbers if n > limit]",
        "[1, 5, 9], 4",
        "[3, 3], 3",
        "[], 1",
    ),
    define("double_all(numbers)", "return [n * 2 for n in numbers]", "[1, 2, 3]", "[0]", "[5, 2]"),
    define("square_all(numbers)", "return [n ** 2 for n in numbers]", "[1, 2, 3]", "[0]", "[5, 2]"),
    define(
        "add_to_all(numbers, k)", "return [n + k for n in numbers]", "[1, 2], 3", "[5], 0", "[], 1"
    ),
    define(
        "count_positives(numbers)",
        "return len([n for n in numbers if n > 0])",
        "[1, -2, 3]",
        "[0]",
        "[5, 5]",
    ),
    define(
        "sum_of_evens(numbers)",
        "return sum([n for n in numbers if n % 2 == 0])",
        "[1, 2, 3, 4]",
        "[1, 3]",
        "[6]",
    ),
    define(
        "product(numbers)",
        "result = 1\nfor n in numbers:\n    result *= n\nreturn result",
        "[2, 3, 4]",
        "[5]",
        "[7, 0]",
    ),
    define(
        "all_positive(numbers)", "return all([n > 0 for n in numbers])", "[1, 2]", "[1, -2]", "[-3]"
    ),
    define("word_lengths(words)", "return [len(w) for w in words]", "['a', 'bcd']", "['xy']", "[]"),
    define("upper_all(words)", "return [w.upper() for w in words]", "['a', 'Bc']", "['OK']", "[]"),
    define(
        "long_words(words, n)",
        "return [w for w in words if len(w) > n]",
        "['a', 'abc'], 2",
        "['hi', 'you'], 1",
        "[], 3",
    ),
    define(
        "remove_item(items, item)",
        "return [x for x in items if x != item]",
        "[1, 2, 1], 1",
        "['a', 'b'], 'a'",
        "[3], 4",
    ),
    define("count_unique(items)", "return len(set(items))", "[1, 1, 2]", "['a', 'b']", "[]"),
    define(
        "has_duplicates(items)", "return len(items) != len(set(items))", "[1, 1]", "[1, 2]", "[]"
    ),
    define("count_up_to(n)", "return list(range(1, n + 1))", "3", "1", "0"),
    define("count_down_from(n)", "return list(range(n, 0, -1))", "3", "1", "0"),
    define(
        "longest_word(words)",
        "return max(words, key=len)",
        "['a', 'bcd']",
        "['hello', 'hi']",
        "['a']",
    ),
    define(
        "shortest_word(words)",
        "return min(words, key=len)",
        "['a', 'bcd']",
        "['hello', 'hi']",
        "['a']",
    ),
    define(
        "sum_first_two(numbers)", "return numbers[0] + numbers[1]", "[1, 2, 3]", "[5, 0]", "[4, 4]"
    ),
    define(
        "sum_of_ends(numbers)", "return numbers[0] + numbers[-1]", "[1, 2, 3]", "[5, 0]", "[4, 4]"
    ),
)

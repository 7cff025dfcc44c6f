"""Bundled functions on strings."""

from .functions import define

TEXT = (
    define("to_upper(text)", "return text.upper()", "'abc'", "'Hi'", "'OK'"),
    define("to_lower(text)", "return text.lower()", "'ABC'", "'Hi'", "'ok'"),
    define("shout(text)", "return text.upper() + '!'", "'stop'", "'Hi'", "'a'"),
    define("reverse_text(text)", "return text[::-1]", "'abc'", "'xy'", "'a'"),
    define("first_initial(name)", "return name[0].upper()", "'ann'", "'Bob'", "'x'"),
    define("capitalize_word(word)", "return word[0].upper() + word[1:]", "'cat'", "'Dog'", "'x'"),
    define("laugh(n)", "return 'ha' * n", "1", "3", "0"),
    define("greet(name)", "return 'Hello, ' + name", "'Ann'", "'Bob'", "'you'"),
    define(
        "full_name(first, last)",
        "return first + ' ' + last",
        "'Ann', 'Lee'",
        "'Bob', 'Ray'",
        "'x', 'y'",
    ),
    define(
        "last_name_first(first, last)",
        "return last + ', ' + first",
        "'Ann', 'Lee'",
        "'Bob', 'Ray'",
        "'a', 'a'",
    ),
    define("plural(word)", "return word + 's'", "'cat'", "'dog'", "'car'"),
    define("surround(text, mark)", "return mark + text + mark", "'a', '*'", "'hi', '-'", "'', '#'"),
    define(
        "starts_with(text, start)",
        "return text.startswith(start)",
        "'abc', 'a'",
        "'abc', 'c'",
        "'level', 'l'",
    ),
    define(
        "ends_with(text, end)",
        "return text.endswith(end)",
        "'abc', 'c'",
        "'abc', 'a'",
        "'level', 'l'",
    ),
    define("is_question(text)", "return text.endswith('?')", "'Why?'", "'Yes.'", "'? no'"),
    define(
        "contains(text, part)",
        "return part in text",
        "'hello', 'ell'",
        "'hello', 'x'",
        "'cat', 'c'",
    ),
    define("count_words(text)", "return len(text.split())", "'a b c'", "'hello'", "''"),
    define("first_word(text)", "return text.split()[0]", "'one two'", "'a b c'", "'x x'"),
    define("last_word(text)", "return text.split()[-1]", "'one two'", "'a b c'", "'x x'"),
    define("remove_spaces(text)", "return text.replace(' ', '')", "'a b'", "' hi '", "'ok'"),
    define("spaces_to_dashes(text)", "return text.replace(' ', '-')", "'a b'", "'x y z'", "'ok'"),
    define(
        "replace_text(text, old, new)",
        "return text.replace(old, new)",
        "'cat', 'c', 'b'",
        "'aaa', 'a', 'o'",
        "'dog', 'x', 'y'",
    ),
    define("trim(text)", "return text.strip()", "' a '", "'b  '", "'  c'", "'d'"),
    define("join_words(words)", "return ' '.join(words)", "['a', 'b']", "['one']", "[]"),
    define("is_palindrome(text)", "return text == text[::-1]", "'level'", "'abc'", "'aa'"),
    define("is_number(text)", "return text.isdigit()", "'123'", "'abc'", "'4a'"),
    define(
        "same_word(a, b)", "return a.lower() == b.lower()", "'Hi', 'hI'", "'a', 'b'", "'x', 'X'"
    ),
    define("first_three(text)", "return text[:3]", "'abcdef'", "'xyz'", "'hello'"),
    define("last_three(text)", "return text[-3:]", "'abcdef'", "'xyz'", "'hello'"),
    define("file_extension(name)", "return name.split('.')[-1]", "'a.txt'", "'b.c.py'", "'x.x'"),
    define("user_of(email)", "return email.split('@')[0]", "'ann@site.com'", "'x@x'", "'bob@a.b'"),
    define(
        "domain_of(email)", "return email.split('@')[1]", "'ann@site.com'", "'x@x'", "'bob@a.b'"
    ),
    define(
        "count_vowels(text)",
        "return len([c for c in text if c in 'aeiou'])",
        "'hello'",
        "'xyz'",
        "'aei'",
    ),
    define(
        "only_digits(text)",
        "return ''.join([c for c in text if c.isdigit()])",
        "'a1b2'",
        "'123'",
        "'abc'",
    ),
    define(
        "longer_word(a, b)",
        "return a if len(a) > len(b) else b",
        "'abc', 'ab'",
        "'a', 'xyz'",
        "'hi', 'hi'",
    ),
)

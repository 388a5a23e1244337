"""Random and adversarial strings of many scripts, the same ones for the same seed."""
import random

# Code points of blocks that tokenizers treat in different ways.
BLOCKS = [
    (0x20, 0x7e), (0x00, 0x1f), (0x7f, 0xff), (0x100, 0x24f), (0x250, 0x2af), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f),
    (0x530, 0x58f), (0x590, 0x5ff), (0x600, 0x6ff), (0x700, 0x74f), (0x900, 0x97f), (0x980, 0x9ff), (0xa00, 0xa7f), (0xb80, 0xbff),
    (0xd00, 0xd7f), (0xe00, 0xe7f), (0xe80, 0xeff), (0xf00, 0xfff), (0x1000, 0x109f), (0x10a0, 0x10ff), (0x1100, 0x11ff),
    (0x1200, 0x137f), (0x13a0, 0x13ff), (0x1780, 0x17ff), (0x1800, 0x18af), (0x1e00, 0x1eff), (0x1f00, 0x1fff), (0x2000, 0x206f),
    (0x2070, 0x209f), (0x20a0, 0x20cf), (0x2100, 0x218f), (0x2190, 0x21ff), (0x2200, 0x22ff), (0x2460, 0x24ff), (0x2500, 0x259f),
    (0x2600, 0x27bf), (0x2e80, 0x2fdf), (0x3000, 0x303f), (0x3040, 0x30ff), (0x3100, 0x318f), (0x3200, 0x33ff), (0x4e00, 0x9fff),
    (0xa000, 0xa4cf), (0xac00, 0xd7a3), (0xe000, 0xe0ff), (0xf900, 0xfaff), (0xfb00, 0xfdff), (0xfe00, 0xfe0f), (0xfe20, 0xfe2f),
    (0xff00, 0xffef), (0xfff0, 0xffff), (0x10000, 0x100ff), (0x10330, 0x1034f), (0x10400, 0x1044f), (0x12000, 0x1207f),
    (0x1d100, 0x1d1ff), (0x1d400, 0x1d7ff), (0x1f100, 0x1f1ff), (0x1f300, 0x1f64f), (0x1f900, 0x1f9ff), (0x20000, 0x2007f),
    (0xe0000, 0xe007f), (0x10ff00, 0x10ffff),
]
PIECES = [
    "'s", "'S", "'re", "'LL", "'ſ", "’s", "don't", "I'VE", "\r\n", "\n\n", "\t", "  ", "   ", "\u00a0", "\u3000", "\u180e", "\u200b", "\u200d", "\u0085",
    "\u2028", "\ufeff", "▁", "▁▁", "Ġ", "<0x0A>", "<0xE2>", "<s>", "</s>", "<unk>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>",
    "<|endoftext", "123", "1234567", "٣٤٥", "²³", "Ⅷ", "½", "e\u0301", "é", "ﬁ", "ß", "ẞ", "İ", "ı", "ς", "한국어", "\u1112\u1161\u11ab", "日本語", "中文字符",
    "Привет", "Ελληνικά", "שלום", "مرحبا", "हिन्दी", "ไทย", "ქართული", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🤷🏽‍♀️", "\u0300\u0301\u0302", "a\u0327\u0301", "q\u0323\u0307\u0301",
    "http://example.com/?a=b&c=d", "x+=1;//", "/*", "*/", "{}[]()", "====", "-----", "....", "!?!?", "$100.00", "snake_case", "camelCase",
    "ALLCAPS", "aaaaaaaaaaaaaaaa", "abcabcabcabc", "\\n", "\"", "the", " the", "The", " and", "ing", "tion", "ł", "ŉ", "ǅ", "K", "Ａ", "\x00", "\x7f",
]


def character(rng):
    while True:
        low, high = rng.choice(BLOCKS)
        point = rng.randint(low, high)
        if not 0xd800 <= point <= 0xdfff:
            return chr(point)


def text(rng):
    """One string, of one of several kinds."""
    kind = rng.randrange(8)
    size = int(rng.expovariate(1 / 12)) + 1
    if kind == 0:  # characters of any block
        return "".join(character(rng) for _ in range(size))
    if kind == 1:  # of one block, with spaces
        low, high = rng.choice(BLOCKS)
        return "".join(" " if rng.random() < 0.2 else chr(point) for point in (rng.randint(low, high) for _ in range(2 * size))
                       if not 0xd800 <= point <= 0xdfff)
    if kind == 2:  # pieces
        return "".join(rng.choice(PIECES) for _ in range(size))
    if kind == 3:  # words of ASCII
        return " ".join("".join(chr(rng.randint(97, 122)) for _ in range(rng.randint(1, 9))) for _ in range(size))
    if kind == 4:  # printable ASCII
        return "".join(chr(rng.randint(32, 126)) for _ in range(4 * size))
    if kind == 5:  # a long run, and something after it
        piece = rng.choice(PIECES) if rng.random() < 0.5 else character(rng)
        return piece * rng.randint(1, 60) + rng.choice(PIECES)
    if kind == 6:  # spaces of all kinds
        return "".join(rng.choice([" ", " ", "\n", "\r", "\t", "\u00a0", "\u2003", "\u180e", "\x0b", "\x1c", "a", "."]) for _ in range(size))
    return "".join(rng.choice([character(rng), rng.choice(PIECES), " ", " "]) for _ in range(size))


def texts(seed, count):
    rng = random.Random(seed)
    return [text(rng) for _ in range(count)]


def each_character():
    """Every code point, by itself and between letters."""
    for point in range(0x110000):
        if not 0xd800 <= point <= 0xdfff:
            yield f"{chr(point)}|a{chr(point)}b 1{chr(point)}2 e{chr(point)}\u0334\u0301{chr(point)}"

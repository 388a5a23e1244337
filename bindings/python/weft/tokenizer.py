"""Tokenizers: from text to ids of tokens and back."""
import ctypes
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from . import _raw
from ._core import Config, Object, check, encode, exact, new
from ._types import TokenizerFlags
from .plan import Path


def _written(element: Any, expected: int, call: Callable[[Any, int, Any], int]) -> Any:
    """The array that a call writes, after it has set the number of elements."""
    size = ctypes.c_size_t(expected)
    while True:
        array = (element * size.value)()
        call(array, len(array), ctypes.byref(size))
        if size.value <= len(array):
            return array[:size.value]


class Tokenizer(Object):
    """A file tokenizer.json of Hugging Face's `tokenizers`, or that of a directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(new(_raw.weft_tokenizer_open, encode(path)), _raw.weft_tokenizer_free)

    @classmethod
    def parse(cls, json: Union[str, bytes]) -> "Tokenizer":
        """From the content of such a file."""
        content = json.encode() if isinstance(json, str) else json
        tokenizer = cls.__new__(cls)
        Object.__init__(tokenizer, new(_raw.weft_tokenizer_parse, content, len(content)), _raw.weft_tokenizer_free)
        return tokenizer

    @staticmethod
    def train(text: str, path: Path, **options: Any) -> None:
        """Trains a byte-level BPE on the text, and writes the file. Options: vocabulary, min_count and specials."""
        config = Config("weft_tokenizer_config", options)
        content = text.encode()
        check(_raw.weft_tokenizer_train, content, len(content), config.pointer, encode(path))

    def __len__(self) -> int:
        """The number of ids. Some may have no token."""
        return int(_raw.weft_tokenizer_vocabulary(self._ptr))

    def id(self, token: str) -> Optional[int]:
        """The id of a token as the file writes it."""
        found = int(_raw.weft_tokenizer_id(self._ptr, encode(token.encode())))
        return found if found >= 0 else None

    @property
    def end_token(self) -> Optional[int]:
        """The id of the token that ends a text."""
        found = int(_raw.weft_tokenizer_end_token(self._ptr))
        return found if found >= 0 else None

    def token(self, id: int) -> Optional[str]:
        """The token of an id as the file writes it."""
        token = _raw.weft_tokenizer_token(self._ptr, id, None)
        return None if token is None else token.decode(errors="replace")

    def special(self, id: int) -> bool:
        """Whether an id is that of a special token."""
        special = ctypes.c_uint32()
        _raw.weft_tokenizer_token(self._ptr, id, ctypes.byref(special))
        return bool(special.value)

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> str:
        """A conversation as text, with the chat template of the model. A message has "role" and "content". Encode the text without
        add_specials: the template has added them. Options: add_generation_prompt (default: True), local_time_seconds, for templates that
        print the date, and refuse_specials, for messages that are not trusted."""
        config = Config("weft_chat_config", options)
        array = (_raw.weft_chat_message * len(messages))(
            *[_raw.weft_chat_message(encode(message["role"].encode()), encode(message["content"].encode())) for message in messages])
        expected = 256 + sum(2 * len(message.content) for message in array)
        text: bytes = _written(ctypes.c_char, expected, lambda buffer, capacity, size: check(
            _raw.weft_tokenizer_chat, self._ptr, array, len(array), config.pointer, buffer, capacity, size))
        return text.decode()

    def encode(self, text: str, add_specials: bool = False, plain_specials: bool = False) -> List[int]:
        """The ids of a text. `add_specials`: with the tokens for its begin and end. `plain_specials`: names of special tokens in it are text."""
        content = text.encode()
        flags = (TokenizerFlags.ADD_SPECIALS if add_specials else 0) | (TokenizerFlags.PLAIN_SPECIALS if plain_specials else 0)
        return list(_written(ctypes.c_int32, len(content) // 2 + 16, lambda array, capacity, size: check(
            _raw.weft_tokenizer_encode, self._ptr, content, len(content), flags, array, capacity, size)))

    def decode(self, ids: Sequence[int], skip_specials: bool = False) -> str:
        """The text of ids. Bytes that are not UTF-8 become U+FFFD."""
        array = exact(ctypes.c_int32, ids)
        flags = TokenizerFlags.SKIP_SPECIALS if skip_specials else 0
        text: bytes = _written(ctypes.c_char, 8 * len(ids) + 16, lambda buffer, capacity, size: check(
            _raw.weft_tokenizer_decode, self._ptr, array, len(array), flags, buffer, capacity, size))
        return text.decode()

    def stream(self, ids: Iterable[int], skip_specials: bool = False) -> Iterator[str]:
        """What each id adds to the text, and the rest. A character whose bytes are not complete is held back."""
        flags = TokenizerFlags.SKIP_SPECIALS if skip_specials else 0
        with Object(new(_raw.weft_text_stream_new, self._ptr, flags), _raw.weft_text_stream_free) as stream:
            text, size = ctypes.c_char_p(), ctypes.c_size_t()

            def part(function: Callable[..., int], *arguments: int) -> str:
                check(function, stream._ptr, *arguments, ctypes.byref(text), ctypes.byref(size))
                return ctypes.string_at(text, size.value).decode()

            for id in ids:
                yield part(_raw.weft_text_stream_add, id)
            yield part(_raw.weft_text_stream_finish)

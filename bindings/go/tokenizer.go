package weft

/*
#include <weft.h>
*/
import "C"

import (
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// EncodeFlags change what Tokenizer.Encode does.
type EncodeFlags uint32

const (
	AddSpecials   EncodeFlags = C.WEFT_ADD_SPECIALS   // add the tokens for the begin and the end of a text
	PlainSpecials EncodeFlags = C.WEFT_PLAIN_SPECIALS // the name of a special token in the text is text
)

// Tokenizer turns text into ids of tokens, and ids into text. Goroutines may share it.
type Tokenizer struct {
	mu sync.RWMutex // Close waits for other calls
	c  *C.weft_tokenizer
}

// OpenTokenizer opens tokenizer.json of Hugging Face's tokenizers, or that of a directory.
func OpenTokenizer(path string) (*Tokenizer, error) {
	return openTokenizer(func(own *memory, t **C.weft_tokenizer, err *C.weft_error) C.weft_status {
		return C.weft_tokenizer_open(own.text(path), t, err)
	})
}

// ParseTokenizer reads the content of such a file.
func ParseTokenizer(json []byte) (*Tokenizer, error) {
	return openTokenizer(func(own *memory, t **C.weft_tokenizer, err *C.weft_error) C.weft_status {
		return C.weft_tokenizer_parse(own.content(string(json)), C.size_t(len(json)), t, err)
	})
}

func openTokenizer(open func(*memory, **C.weft_tokenizer, *C.weft_error) C.weft_status) (*Tokenizer, error) {
	t := &Tokenizer{}
	if err := call(func(own *memory, err *C.weft_error) C.weft_status { return open(own, &t.c, err) }); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(t, (*Tokenizer).Close)
	return t, nil
}

func (t *Tokenizer) borrow(own *memory) *C.weft_tokenizer {
	return borrow(own, t.mu.RLocker(), &t.c, "tokenizer")
}

// Close frees the tokenizer.
func (t *Tokenizer) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	C.weft_tokenizer_free(t.c)
	t.c = nil
	runtime.SetFinalizer(t, nil)
	return nil
}

// Vocabulary returns the number of ids. Some may have no token.
func (t *Tokenizer) Vocabulary() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return int(C.weft_tokenizer_vocabulary(t.c))
}

// ID returns the id of a token as the file writes it.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	id = -1
	_ = call(func(own *memory, _ *C.weft_error) C.weft_status {
		id = int32(C.weft_tokenizer_id(t.borrow(own), own.text(token)))
		return 0
	})
	return id, id >= 0
}

// EndToken returns the id of the token that ends a text.
func (t *Tokenizer) EndToken() (id int32, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	id = int32(C.weft_tokenizer_end_token(t.c))
	return id, id >= 0
}

// Token returns the token of an id as the file writes it, and whether it is special. It returns "" if there is none.
func (t *Tokenizer) Token(id int32) (token string, special bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var flag C.uint32_t
	return C.GoString(C.weft_tokenizer_token(t.c, C.int32_t(id), &flag)), flag != 0
}

// Encode returns the ids of a text.
func (t *Tokenizer) Encode(text string, flags EncodeFlags) (ids []int32, err error) {
	err = call(func(own *memory, err *C.weft_error) C.weft_status {
		tokenizer, c := t.borrow(own), own.content(text)
		return fill(&ids, len(text)/2+16, func(first unsafe.Pointer, room C.size_t, size *C.size_t) C.weft_status {
			return C.weft_tokenizer_encode(tokenizer, c, C.size_t(len(text)), C.uint32_t(flags), (*C.int32_t)(first), room, size, err)
		})
	})
	return ids, err
}

// fill makes a slice of what a function writes. The function sets the number of elements, for which the room may be too small.
func fill[T any](out *[]T, room int, write func(first unsafe.Pointer, room C.size_t, size *C.size_t) C.weft_status) C.weft_status {
	for {
		all := make([]T, room)
		size := C.size_t(room)
		status := write(unsafe.Pointer(&all[0]), size, &size)
		if status < 0 {
			return status
		}
		if int(size) <= room {
			*out = all[:size]
			return status
		}
		room = int(size)
	}
}

// ChatMessage is a message of a conversation.
type ChatMessage struct {
	Role    string // "system", "user", "assistant", or another one that the template knows
	Content string
}

// ChatConfig configures Tokenizer.Chat.
type ChatConfig struct {
	NoGenerationPrompt bool      // the text ends with the last message, not with the begin of an answer
	LocalTime          time.Time // for templates that print the date; zero: none
	RefuseSpecials     bool      // refuse a content with the name of a special token, for messages that are not trusted
}

// Chat renders a conversation with the chat template of the model. Encode the text without AddSpecials: the template has added them.
func (t *Tokenizer) Chat(messages []ChatMessage, config ChatConfig) (string, error) {
	var text []byte
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		var c C.weft_chat_config
		C.weft_chat_config_init(&c, C.sizeof_weft_chat_config)
		c.add_generation_prompt, c.refuse_specials = flag(!config.NoGenerationPrompt), flag(config.RefuseSpecials)
		if !config.LocalTime.IsZero() {
			_, offset := config.LocalTime.Zone()
			c.local_time_ns = C.int64_t(config.LocalTime.UnixNano() + int64(offset)*int64(time.Second))
		}
		room := 256
		all := array(own, messages, func(message ChatMessage) C.weft_chat_message {
			room += 2 * len(message.Content)
			return C.weft_chat_message{role: own.text(message.Role), content: own.text(message.Content)}
		})
		tokenizer := t.borrow(own)
		return fill(&text, room, func(first unsafe.Pointer, room C.size_t, size *C.size_t) C.weft_status {
			return C.weft_tokenizer_chat(tokenizer, all, C.size_t(len(messages)), &c, (*C.char)(first), room, size, err)
		})
	})
	return string(text), err
}

// Decode returns the text of ids. Bytes that are not UTF-8 become U+FFFD.
func (t *Tokenizer) Decode(ids []int32, skipSpecials bool) (string, error) {
	var text []byte
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		tokenizer, all := t.borrow(own), array(own, ids, toToken)
		return fill(&text, 8*len(ids)+16, func(first unsafe.Pointer, room C.size_t, size *C.size_t) C.weft_status {
			return C.weft_tokenizer_decode(tokenizer, all, C.size_t(len(ids)), skipFlag(skipSpecials), (*C.char)(first), room, size, err)
		})
	})
	return string(text), err
}

func skipFlag(skip bool) C.uint32_t {
	if skip {
		return C.WEFT_SKIP_SPECIALS
	}
	return 0
}

// TextStream decodes ids that arrive one by one. It is used by one goroutine at a time.
type TextStream struct{ c *C.weft_text_stream }

// Stream starts a text.
func (t *Tokenizer) Stream(skipSpecials bool) (*TextStream, error) {
	s := &TextStream{}
	err := call(func(own *memory, err *C.weft_error) C.weft_status {
		return C.weft_text_stream_new(t.borrow(own), skipFlag(skipSpecials), &s.c, err)
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(s, (*TextStream).Close)
	return s, nil
}

// Close frees the stream.
func (s *TextStream) Close() error {
	if s == nil {
		return nil
	}
	C.weft_text_stream_free(s.c)
	s.c = nil
	runtime.SetFinalizer(s, nil)
	return nil
}

// Add returns what the id adds to the text. A character whose bytes are not complete is held back.
func (s *TextStream) Add(id int32) (string, error) {
	return s.part(func(text **C.char, size *C.size_t, err *C.weft_error) C.weft_status {
		return C.weft_text_stream_add(s.c, C.int32_t(id), text, size, err)
	})
}

// Finish returns the rest of the text, and starts another one.
func (s *TextStream) Finish() (string, error) {
	return s.part(func(text **C.char, size *C.size_t, err *C.weft_error) C.weft_status {
		return C.weft_text_stream_finish(s.c, text, size, err)
	})
}

func (s *TextStream) part(function func(text **C.char, size *C.size_t, err *C.weft_error) C.weft_status) (string, error) {
	if s.c == nil {
		return "", &Error{Status: ESTATE, Text: "the text stream is closed"}
	}
	var text *C.char
	var size C.size_t
	err := newError()
	if err := failed(function(&text, &size, err), err); err != nil {
		return "", err
	}
	part := string(C.GoBytes(unsafe.Pointer(text), C.int(size)))
	runtime.KeepAlive(s)
	return part, nil
}

// TokenizerConfig configures TrainTokenizer.
type TokenizerConfig struct {
	Vocabulary int      // number of tokens; 0: the default
	MinCount   int      // a pair of tokens that occurs less often is not merged; 0: the default
	Specials   []string // special tokens, whose ids are the first
}

// TrainTokenizer trains a byte-level BPE on a text, and writes tokenizer.json to path.
func TrainTokenizer(text string, config TokenizerConfig, path string) error {
	return call(func(own *memory, err *C.weft_error) C.weft_status {
		var c C.weft_tokenizer_config
		C.weft_tokenizer_config_init(&c, C.sizeof_weft_tokenizer_config)
		own.setCount(&c.vocabulary, "vocabulary", config.Vocabulary)
		own.setCount(&c.min_count, "min_count", config.MinCount)
		c.specials, c.n_specials = array(own, config.Specials, own.text), count(len(config.Specials))
		return C.weft_tokenizer_train(own.content(text), C.size_t(len(text)), &c, own.text(path), err)
	})
}

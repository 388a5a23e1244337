package weft

/*
#include <stdlib.h>
#include <weft.h>
*/
import "C"

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"unsafe"
)

// memory is what a call uses until its end: memory of C, because a configuration must not point to memory of Go, and objects that are not
// closed before.
type memory struct {
	blocks  []unsafe.Pointer
	locks   []sync.Locker
	tensors []*C.weft_tensor
	refused error // why the call cannot be made
}

// call makes a call of the library, and returns its error. The function converts the arguments first. If C would misread one of them, the call
// is not made.
func call(function func(own *memory, err *C.weft_error) C.weft_status) (out error) {
	own, err := &memory{}, newError()
	defer func() {
		if own.refused != nil {
			_ = recover() // the panic of refuse
			out = own.refused
		}
		own.free()
	}()
	return failed(function(own, err), err)
}

// refuse ends the function of a call before it calls the library.
func (m *memory) refuse(err error) {
	m.refused = err
	panic(err)
}

func (m *memory) free() {
	for _, lock := range m.locks {
		lock.Unlock()
	}
	for _, tensor := range m.tensors {
		C.weft_tensor_unref(tensor)
	}
	for _, block := range m.blocks {
		C.free(block)
	}
}

// borrow returns an object for a call, which Close then waits for. A closed one is refused: NULL often means that there is none.
func borrow[P comparable](own *memory, lock sync.Locker, object *P, name string) P {
	lock.Lock()
	own.locks = append(own.locks, lock)
	var closed P
	if *object == closed {
		own.refuse(&Error{Status: ESTATE, Text: "the " + name + " is closed"})
	}
	return *object
}

// errNil refuses an object that is required.
func errNil(name string) error { return &Error{Status: EINVAL, Text: "the " + name + " is nil"} }

func (m *memory) bytes(size uintptr) unsafe.Pointer {
	block := C.calloc(1, C.size_t(size)) // cgo ends the program if this fails, as Go does
	m.blocks = append(m.blocks, block)
	return block
}

// str copies a string that may be absent; "" becomes NULL.
func (m *memory) str(s string) *C.char {
	if s == "" {
		return nil
	}
	return m.text(s)
}

// text copies a string; an empty one stays empty. C would use only the part before a NUL.
func (m *memory) text(s string) *C.char {
	if at := strings.IndexByte(s, 0); at >= 0 {
		m.refuse(&Error{Status: EINVAL, Text: fmt.Sprintf("the text %.60q contains a NUL byte, at %d", s, at)})
	}
	return m.content(s)
}

// secret is str for a text that no error contains.
func (m *memory) secret(name, s string) *C.char {
	if strings.IndexByte(s, 0) >= 0 {
		m.refuse(&Error{Status: EINVAL, Text: name + " contains a NUL byte"})
	}
	return m.str(s)
}

// content copies a string whose size is an argument of the call as well. It may contain any byte.
func (m *memory) content(s string) *C.char {
	copied := C.CString(s)
	m.blocks = append(m.blocks, unsafe.Pointer(copied))
	return copied
}

// array converts the elements of a slice into an array; an empty slice becomes NULL.
func array[To, From any](m *memory, from []From, convert func(From) To) *To {
	if len(from) == 0 {
		return nil
	}
	var one To
	first := (*To)(m.bytes(unsafe.Sizeof(one) * uintptr(len(from))))
	to := unsafe.Slice(first, len(from))
	for i, element := range from {
		to[i] = convert(element)
	}
	return first
}

func (m *memory) checkRange(name string, n, least, most int64) {
	if n < least || n > most {
		m.refuse(&Error{Status: EINVAL, Text: fmt.Sprintf("%s is %d, expected %d to %d", name, n, least, most)})
	}
}

// unsigned converts a number for an argument of 32 bits. One that does not fit is refused.
func (m *memory) unsigned(name string, n int) C.uint32_t {
	m.checkRange(name, int64(n), 0, math.MaxUint32)
	return C.uint32_t(n)
}

// signed is unsigned for a number that may be negative.
func (m *memory) signed(name string, n int) C.int32_t {
	m.checkRange(name, int64(n), math.MinInt32, math.MaxInt32)
	return C.int32_t(n)
}

// noCount means 0 in a field that setCountOrNone sets.
const noCount = -1

// setCount sets a field whose default is not 0.
func (m *memory) setCount(field *C.uint32_t, name string, n int) {
	if n != 0 {
		*field = m.unsigned(name, n)
	}
}

// setCountOrNone is setCount for a field that can be 0.
func (m *memory) setCountOrNone(field *C.uint32_t, name string, n int) {
	if n == noCount {
		*field = 0
		return
	}
	m.setCount(field, name, n)
}

// count converts the size of a slice, or a place in a list. One that does not fit becomes the largest one, which is out of range.
func count(n int) C.uint32_t {
	if n < 0 || uint64(n) > math.MaxUint32 {
		return math.MaxUint32
	}
	return C.uint32_t(n)
}

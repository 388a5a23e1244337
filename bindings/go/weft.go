package weft

/*
#cgo pkg-config: weft
#include <stdlib.h>
#include <weft.h>
*/
import "C"

import (
	"math"
	"unsafe"
)

// None means 0 in a number of a configuration whose default is not 0.
const None = -1

// Version returns the version of the library at run time, as "0.2.0".
func Version() string { return C.GoString(C.weft_version()) }

// Kernels returns the name of the kernels that multiply matrices, and whether they use only a part of the processor.
func Kernels() (name string, slow bool) {
	var part C.uint32_t
	name = text(func(buffer *C.char, size C.size_t) C.size_t { return C.weft_kernels(buffer, size, &part) })
	return name, part != 0
}

// text returns what a function writes; the function returns the bytes that the whole text needs.
func text(write func(buffer *C.char, size C.size_t) C.size_t) string {
	for size := C.size_t(256); ; {
		buffer := make([]byte, size)
		needed := write((*C.char)(unsafe.Pointer(&buffer[0])), size)
		if needed <= size {
			return C.GoString((*C.char)(unsafe.Pointer(&buffer[0])))
		}
		size = needed
	}
}

// memory is memory of C during one call. A configuration must not point to memory of Go.
type memory struct{ blocks []unsafe.Pointer }

func (m *memory) free() {
	for _, block := range m.blocks {
		C.free(block)
	}
}

func (m *memory) bytes(size uintptr) unsafe.Pointer {
	block := C.calloc(1, C.size_t(size)) // cgo ends the program if this fails, as Go does
	m.blocks = append(m.blocks, block)
	return block
}

// str copies a string; "" becomes NULL.
func (m *memory) str(s string) *C.char {
	if s == "" {
		return nil
	}
	return m.text(s)
}

// text copies a string that may be empty.
func (m *memory) text(s string) *C.char {
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

// count converts a number for a field of 32 bits. A number that does not fit becomes the largest one, which the library refuses.
func count(n int) C.uint32_t {
	if n < 0 || uint64(n) > math.MaxUint32 {
		return math.MaxUint32
	}
	return C.uint32_t(n)
}

func setCount(field *C.uint32_t, n int) {
	switch n {
	case 0:
	case None:
		*field = 0
	default:
		*field = count(n)
	}
}

func setNumber(field *C.double, x float64) {
	switch x {
	case 0:
	case None:
		*field = 0
	default:
		*field = C.double(x)
	}
}

func setText(field **C.char, text *C.char) {
	if text != nil {
		*field = text
	}
}

func flag(on bool) C.uint32_t {
	if on {
		return 1
	}
	return 0
}

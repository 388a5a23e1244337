package weft

/*
#cgo pkg-config: weft
#include <weft.h>
*/
import "C"

import (
	"math"
	"unsafe"
)

// None means 0 in a float64 of a configuration whose default is not 0. It is the smallest positive number, which no computation has as its result.
const None = math.SmallestNonzeroFloat64

// Float returns a pointer to x, for a field whose default is nil.
func Float(x float64) *float64 { return &x }

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

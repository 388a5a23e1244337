package weft

/*
#include <weft.h>
*/
import "C"

import (
	"os"
	"unsafe"
)

// Status is the reason of a failure. It is an error for errors.Is.
type Status int32

const (
	EINVAL    Status = C.WEFT_EINVAL    // an argument, shape or name is not valid
	ENOMEM    Status = C.WEFT_ENOMEM    // memory cannot be allocated
	ESTATE    Status = C.WEFT_ESTATE    // the call is valid, but not at this time
	EAGAIN    Status = C.WEFT_EAGAIN    // a bounded queue is full
	ECANCELED Status = C.WEFT_ECANCELED // Mesh.Cancel, Close of a run, or a rank that left has ended the call or the run
	ETIMEDOUT Status = C.WEFT_ETIMEDOUT // a deadline has passed
	EPEER     Status = C.WEFT_EPEER     // another rank is lost, or was refused
	EPROTO    Status = C.WEFT_EPROTO    // a peer violated the protocol
	ENOTSUP   Status = C.WEFT_ENOTSUP   // this build or machine does not support it
	ENOENT    Status = C.WEFT_ENOENT    // there is no such item
	EUSER     Status = C.WEFT_EUSER     // an op of the program, or Choose of a sequence, returned an error
	EINTERNAL Status = C.WEFT_EINTERNAL // an error in weft; please report it
	EIO       Status = C.WEFT_EIO       // input or output failed
	EDATA     Status = C.WEFT_EDATA     // the content of a file, text or tensor is wrong
)

// Error returns the text of the status.
func (s Status) Error() string { return C.GoString(C.weft_status_text(C.weft_status(s))) }

// Error is a failure: its status, and a text that names what failed, what was expected and what was found.
type Error struct {
	Status  Status
	Text    string
	Failure *Failure // of a run that has failed; else nil
	Cause   error    // the error of an op or of Choose in Go, or of a context; else nil
}

// Error returns the text, or that of the status if there is none.
func (e *Error) Error() string {
	text := e.Text
	if text == "" {
		text = e.Status.Error()
	}
	if e.Cause != nil && e.Status != EUSER { // its text is part of the text of the library
		text += ": " + e.Cause.Error()
	}
	return "weft: " + text
}

// Is reports whether target is the status of the error. ENOENT is also [os.ErrNotExist].
func (e *Error) Is(target error) bool {
	if target == os.ErrNotExist {
		return e.Status == ENOENT
	}
	status, ok := target.(Status)
	return ok && status == e.Status
}

// Unwrap returns the error that an op, Choose or a context returned.
func (e *Error) Unwrap() error { return e.Cause }

// newError makes the memory that a call describes its failure in.
func newError() *C.weft_error {
	return &C.weft_error{size: C.sizeof_weft_error}
}

// failed returns the error of a call, or nil.
func failed(status C.weft_status, err *C.weft_error) error {
	if status >= 0 {
		return nil
	}
	out := &Error{Status: Status(status)}
	if err != nil {
		out.Text = C.GoString((*C.char)(unsafe.Pointer(&err.text[0])))
	}
	return out
}

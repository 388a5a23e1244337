package weft

/*
#include <stdlib.h>
#include <weft.h>

void weft_go_log(weft_log_level level, char *text, void *payload);

static void weft_go_set_log(weft_run_config *config) { config->log = (weft_log_cb)weft_go_log; }
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// LogLevel is a level of log lines.
type LogLevel uint32

const (
	LogWarning LogLevel = C.WEFT_LOG_WARNING // refused processes, long waits, failures
	LogInfo    LogLevel = C.WEFT_LOG_INFO    // also the start and the end of a run over processes, its ranks, checkpoints
	LogDebug   LogLevel = C.WEFT_LOG_DEBUG   // also every connection
)

// logger is the function of a run for log lines, in memory of C.
type logger struct{ payload unsafe.Pointer }

func setLog(c *C.weft_run_config, config RunConfig) *logger {
	if config.LogLevel != 0 {
		c.log_level = C.weft_log_level(config.LogLevel)
	}
	if config.Log == nil {
		return nil
	}
	C.weft_go_set_log(c)
	c.log_payload = newPayload(config.Log)
	return &logger{c.log_payload}
}

func (l *logger) free() {
	if l != nil && l.payload != nil {
		destroy(l.payload)
		l.payload = nil
	}
}

// newPayload makes memory of C that refers to a value of Go.
func newPayload(value any) unsafe.Pointer {
	payload := C.calloc(1, C.size_t(unsafe.Sizeof(cgo.Handle(0))))
	*(*cgo.Handle)(payload) = cgo.NewHandle(value)
	return payload
}

func destroy(payload unsafe.Pointer) {
	(*cgo.Handle)(payload).Delete()
	C.free(payload)
}

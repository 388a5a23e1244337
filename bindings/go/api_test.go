package weft_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// api is what these tests read of bindings/api.json.
type api struct {
	Functions []struct{ Name string }
	Enums     []struct{ Values []struct{ Name string } }
	Structs   []struct {
		Name   string
		Size   int
		Fields []struct {
			Name         string
			Offset, Size int
		}
	}
}

func readAPI(t *testing.T) (out api) {
	t.Helper()
	content, err := os.ReadFile("../api.json")
	try(t, err)
	try(t, json.Unmarshal(content, &out))
	return out
}

// Parts of the C interface for which Go has another form.
var notBound = map[string]string{
	"WEFT_OK":          "nil",
	"links":            "len(Prediction.Links)",
	"reserved":         "",
	"reserved2":        "",
	"weft_plan_stages": "Plan.Info",
	"weft_run_serve":   "Serve waits in the poller of Go",
	"weft_run_step":    "Step waits in the poller of Go",
}

func TestTheWholeInterfaceIsBound(t *testing.T) {
	files, err := filepath.Glob("*.go")
	try(t, err)
	var source strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		try(t, err)
		source.Write(regexp.MustCompile(`(?m)//.*$`).ReplaceAll(content, nil))
	}
	used := make(map[string]bool)
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(source.String(), -1) {
		used[word] = true
	}
	missing := make(map[string]bool)
	check := func(name, what string) {
		missing[name] = !used[name]
		if _, is := notBound[name]; !used[name] && !is {
			t.Errorf("%s %s is not bound", what, name)
		}
	}
	all := readAPI(t)
	for _, function := range all.Functions {
		check(function.Name, "function")
	}
	for _, enum := range all.Enums {
		for _, value := range enum.Values {
			check(value.Name, "constant")
		}
	}
	for _, s := range all.Structs {
		for _, field := range s.Fields {
			check(field.Name, "field of "+s.Name)
		}
	}
	for name := range notBound {
		if !missing[name] {
			t.Errorf("notBound has %s, which is bound or no part of the interface", name)
		}
	}
}

// The sizes and offsets that cgo uses are those of the description. A program prints them, because tests cannot use cgo.
func TestLayoutsAreThoseOfTheDescription(t *testing.T) {
	var lines, expected strings.Builder
	for _, s := range readAPI(t).Structs {
		fmt.Fprintf(&lines, "\tfmt.Println(unsafe.Sizeof(C.%s{}))\n", s.Name)
		fmt.Fprintln(&expected, s.Size)
		for _, field := range s.Fields {
			name := field.Name
			if name == "type" || name == "func" {
				name = "_" + name
			}
			fmt.Fprintf(&lines, "\tfmt.Println(unsafe.Offsetof(C.%s{}.%s), unsafe.Sizeof(C.%s{}.%s))\n", s.Name, name, s.Name, name)
			fmt.Fprintln(&expected, field.Offset, field.Size)
		}
	}
	program := "package main\n\n// #cgo pkg-config: weft\n// #include <weft.h>\nimport \"C\"\nimport (\n\t\"fmt\"\n\t\"unsafe\"\n)\n\nfunc main() {\n" +
		lines.String() + "}\n"
	path := filepath.Join(t.TempDir(), "main.go")
	try(t, os.WriteFile(path, []byte(program), 0o600))
	command := exec.Command("go", "run", path)
	command.Stderr = os.Stderr
	found, err := command.Output()
	try(t, err)
	if string(found) != expected.String() {
		t.Errorf("found\n%s\nexpected\n%s", found, expected.String())
	}
}

#!/usr/bin/env python3
"""tools/api reads a header as bindings/api.json describes it, and names each file that differs. Exits with 77 if there is no libclang."""
import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "api"
loader = importlib.machinery.SourceFileLoader("api", str(TOOL))
api = importlib.util.module_from_spec(importlib.util.spec_from_loader("api", loader))
loader.exec_module(api)

HEADER = """\
#include <stdint.h>
/** Any
 * rank. */
#define WEFT_ANY (-1)
typedef int32_t weft_status;
enum weft_flags { WEFT_FAST = 4 /**< fast */ };
typedef enum weft_mode { WEFT_TRAIN = 1 } weft_mode;
typedef struct weft_run weft_run;
typedef void (*weft_done)(void *payload);
/** A pair. */
typedef struct weft_config {
  uint32_t size, flags;   /**< of weft_flags. Default: 3. More. */
  const char *name;       /**< Default: NULL. */
  double at[2];
  int32_t (*call)(const weft_run *run, void *payload);
} weft_config;
/** Sets. Thread: any. */
void weft_config_init(weft_config *config, size_t size);
/** Starts. `config` may be NULL.
 * - one
 * - two
 *
 * Owner: caller; free with weft_run_free. Thread: owner. */
weft_status weft_run_start(const weft_config *config, weft_run **out, char digest[33]);
weft_status weft_run_start_too(weft_run *const *runs, weft_mode mode, weft_done done);
/** NULL is a no-op. Thread: any. */
void weft_run_free(weft_run *run);
/** The name. Borrowed: valid as long as the run. */
const char *weft_run_name(const weft_run *run);
int weft_plain(void);
"""


def described(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "weft.h"
        path.write_text(text.replace("<stdint.h>", "<stdint.h>\n#include <stddef.h>"), encoding="utf-8")
        return api.without_absent(api.Header(CINDEX, path).describe())


class Api(unittest.TestCase):
    def setUp(self):
        self.api = described(HEADER)
        self.functions = {f["name"]: f for f in self.api["functions"]}

    def test_constants_and_enums(self):
        self.assertEqual(self.api["constants"], [{"name": "WEFT_ANY", "value": -1, "doc": "Any rank."}])
        flags, mode = self.api["enums"]
        self.assertEqual(flags["values"], [{"name": "WEFT_FAST", "value": 4, "doc": "fast"}])
        self.assertNotIn("typedef", flags)
        self.assertTrue(mode["typedef"])

    def test_types(self):
        self.assertEqual(self.api["opaques"], [{"name": "weft_run", "free": "weft_run_free"}])
        self.assertEqual(self.api["integers"][0]["c"], "typedef int32_t weft_status")
        self.assertEqual(self.api["callbacks"][0]["type"]["result"], {"kind": "void"})

    def test_structs(self):
        config = self.api["structs"][0]
        self.assertEqual((config["size"], config["align"], config["sized"], config["init"]), (40, 8, True, "weft_config_init"))
        self.assertEqual([f["offset"] for f in config["fields"]], [0, 4, 8, 16, 32])
        flags, name, at, call = config["fields"][1:]
        self.assertEqual(flags["default"], "3")
        self.assertTrue(name["nullable"])
        self.assertEqual(at["type"], {"kind": "array", "length": 2, "of": {"kind": "double"}})
        self.assertEqual([p["name"] for p in call["type"]["params"]], ["run", "payload"])

    def test_functions(self):
        start = self.functions["weft_run_start"]
        self.assertEqual((start["thread"], start["free"]), ("owner", "weft_run_free"))
        self.assertEqual(start["doc"].split("\n")[1:3], ["- one", "- two"])
        self.assertEqual(start["c"], "weft_status weft_run_start(const weft_config*config,weft_run**out,char digest[33])")
        self.assertEqual([p.get("nullable") for p in start["params"]], [True, None, None])
        self.assertEqual([p.get("out") for p in start["params"]], [None, True, True])
        self.assertTrue(self.functions["weft_run_free"]["params"][0]["nullable"])
        self.assertEqual(self.functions["weft_run_name"]["borrowed"], "valid as long as the run")

    def test_a_comment_is_for_the_functions_directly_below(self):
        too = self.functions["weft_run_start_too"]
        self.assertEqual(too["thread"], "owner")
        self.assertEqual([p["type"]["kind"] for p in too["params"]], ["pointer", "enum", "callback"])
        self.assertEqual(too["params"][0]["type"]["to"], {"kind": "pointer", "to": {"kind": "opaque", "name": "weft_run"}})
        apart = described(HEADER.replace("int weft_plain", "\nint weft_plain"))
        self.assertNotIn("doc", apart["functions"][-1])

    def test_a_type_without_a_form_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "short"):
            described(HEADER.replace("int weft_plain(void)", "short weft_plain(void)"))

    def test_files_that_differ_are_named(self):
        self.assertEqual(api.differences({api.API: api.API.read_text(encoding="utf-8")}), [])
        self.assertEqual(api.differences({api.API: "{}"}), ["bindings/api.json is not as generated; run tools/api"])


if __name__ == "__main__":
    try:
        CINDEX = api.load_clang()
    except api.Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(api.SKIP)
    unittest.main()

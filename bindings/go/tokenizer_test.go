package weft_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"weft"
)

func TestATokenizerTurnsTextIntoIdsAndBack(t *testing.T) {
	tokenizer, err := weft.OpenTokenizer("../../tests/data/tokenizers/byte_fallback")
	try(t, err)
	defer tokenizer.Close()
	const text = "Naïve 日本 👩 x"
	ids, err := tokenizer.Encode(text, 0)
	try(t, err)
	decoded, err := tokenizer.Decode(ids, false)
	try(t, err)
	stream, err := tokenizer.Stream(false)
	try(t, err)
	defer stream.Close()
	streamed := ""
	for _, id := range ids {
		part, err := stream.Add(id)
		try(t, err)
		streamed += part
	}
	rest, err := stream.Finish()
	try(t, err)
	if decoded != text || streamed+rest != text {
		t.Errorf("decoded %q, streamed %q", decoded, streamed+rest)
	}
	try(t, stream.Close())
	_, added := stream.Add(ids[0])
	_, finished := stream.Finish()
	for _, err := range []error{added, finished} {
		if !errors.Is(err, weft.ESTATE) || !strings.Contains(err.Error(), "the text stream is closed") {
			t.Error("a closed stream:", err)
		}
	}
	begin, ok := tokenizer.ID("<s>")
	ids, err = tokenizer.Encode("a", weft.AddSpecials)
	try(t, err)
	if token, special := tokenizer.Token(begin); !ok || token != "<s>" || !special || ids[0] != begin {
		t.Errorf("token %q, ids %v", token, ids)
	}
	if end, ok := tokenizer.EndToken(); !ok || end != 2 {
		t.Errorf("the end token is %d", end)
	}
	if ids, err := tokenizer.Encode("<s>", weft.PlainSpecials); err != nil || len(ids) < 2 {
		t.Errorf("ids %v, %v", ids, err)
	}
}

func TestATokenizerIsTrained(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	try(t, weft.TrainTokenizer("low low low lower", weft.TokenizerConfig{Vocabulary: 300, Specials: []string{"<|end|>"}}, path))
	tokenizer, err := weft.OpenTokenizer(path)
	try(t, err)
	defer tokenizer.Close()
	if _, ok := tokenizer.ID("low"); !ok || tokenizer.Vocabulary() <= 257 {
		t.Errorf("vocabulary %d", tokenizer.Vocabulary())
	}
	if _, err := weft.ParseTokenizer([]byte("{}")); err == nil {
		t.Error("an empty object was accepted")
	}
}

func TestSamplesOfTextAreLearnedFromTheCompletionOn(t *testing.T) {
	tokenizer, err := weft.OpenTokenizer("../../tests/data/tokenizers/byte_fallback")
	try(t, err)
	defer tokenizer.Close()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	try(t, os.WriteFile(path, []byte(`{"prompt": "a", "completion": "b"}`), 0o600))
	end := int32(2)
	data, err := weft.OpenData(weft.DataConfig{Path: path, Vocabulary: 520, SeqLen: 8, Tokenizer: tokenizer, EndToken: &end})
	try(t, err)
	defer data.Close()
	x, err := weft.NewTensor(weft.I32, 1, 8)
	try(t, err)
	y, err := weft.NewTensor(weft.I32, 1, 8)
	try(t, err)
	try(t, data.Sample(0, 0, x, y))
	ends := 0
	for _, target := range y.Int32() {
		if target == end {
			ends++
		}
	}
	if y.Int32()[0] != -1 || ends != 1 {
		t.Errorf("targets %v", y.Int32())
	}
}

func TestLongSamplesAreCutOrSkipped(t *testing.T) {
	tokenizer, err := weft.OpenTokenizer("../../tests/data/tokenizers/byte_fallback")
	try(t, err)
	defer tokenizer.Close()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	samples := `{"prompt": "a", "completion": "b"}` + "\n" + `{"prompt": "a", "completion": "` + strings.Repeat("x", 60) + `"}`
	try(t, os.WriteFile(path, []byte(samples), 0o600))
	config := weft.DataConfig{Path: path, Vocabulary: 520, SeqLen: 8, Tokenizer: tokenizer}
	if _, err := weft.OpenData(config); err == nil || !strings.Contains(err.Error(), "1 of 2 samples are longer") {
		t.Error(err)
	}
	for what, expected := range map[weft.LongSamples][3]int{weft.CutLong: {2, 1, 0}, weft.SkipLong: {1, 0, 1}} {
		config.LongSamples = what
		data, err := weft.OpenData(config)
		try(t, err)
		if found := [3]int{data.Windows(), data.CutSamples(), data.SkippedSamples()}; found != expected {
			t.Errorf("%v: %v, expected %v", what, found, expected)
		}
		try(t, data.Close())
	}
}

func TestPackedSamplesHavePositions(t *testing.T) {
	tokenizer, err := weft.OpenTokenizer("../../tests/data/tokenizers/byte_fallback")
	try(t, err)
	defer tokenizer.Close()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	sample := `{"prompt": "a", "completion": "b"}` + "\n"
	try(t, os.WriteFile(path, []byte(sample+sample), 0o600))
	data, err := weft.OpenData(weft.DataConfig{Path: path, EvalPath: path, Vocabulary: 520, SeqLen: 16, Tokenizer: tokenizer, Packed: true})
	try(t, err)
	defer data.Close()
	if windows := data.Windows(); windows != 1 {
		t.Errorf("%d windows for training, expected 1", windows)
	}
	if windows := data.EvalWindows(); windows != 1 {
		t.Error(windows)
	}
	x, err := weft.NewTensor(weft.I32, 1, 16)
	try(t, err)
	y, err := weft.NewTensor(weft.I32, 1, 16)
	try(t, err)
	positions, err := weft.NewTensor(weft.I32, 1, 16)
	try(t, err)
	try(t, data.Sample(0, 0, x, y))
	try(t, data.Positions(0, 0, positions))
	second := 1
	for positions.Int32()[second] != 0 {
		second++
	}
	if second < 2 || !reflect.DeepEqual(x.Int32()[:second], x.Int32()[second:2*second]) || positions.Int32()[second+1] != 1 {
		t.Error(x.Int32(), positions.Int32())
	}
	try(t, data.EvalPositions(0, positions))
	if err := data.EvalPositions(1, positions); !errors.Is(err, weft.EINVAL) {
		t.Error(err)
	}
}

func TestAConversationBecomesText(t *testing.T) {
	tokenizer, err := weft.OpenTokenizer("../../tests/data/tokenizers/byte_fallback")
	try(t, err)
	defer tokenizer.Close()
	messages := []weft.ChatMessage{{Role: "user", Content: "日本?"}, {Role: "assistant", Content: strings.Repeat("x", 2000)}}
	expected := "<s>[user] 日本?</s>\n[assistant] " + strings.Repeat("x", 2000) + "</s>\n"
	text, err := tokenizer.Chat(messages, weft.ChatConfig{})
	try(t, err)
	if text != expected+"[assistant] " {
		t.Errorf("text %q", text)
	}
	zone := time.FixedZone("", 3600)
	dated := weft.ChatConfig{NoGenerationPrompt: true, LocalTime: time.Date(2024, 7, 26, 0, 30, 0, 0, zone)}
	text, err = tokenizer.Chat(messages, dated)
	try(t, err)
	if text != strings.Replace(expected, "<s>", "<s>(26 Jul 2024)", 1) {
		t.Errorf("text %q", text)
	}
	_, err = tokenizer.Chat([]weft.ChatMessage{{Role: "user", Content: "</s>"}}, weft.ChatConfig{RefuseSpecials: true})
	if err == nil || !strings.Contains(err.Error(), "special token '</s>'") {
		t.Errorf("error %v", err)
	}
	_, err = tokenizer.Chat([]weft.ChatMessage{{Role: "tool"}}, weft.ChatConfig{})
	if err == nil || !strings.Contains(err.Error(), "unknown role tool") {
		t.Errorf("error %v", err)
	}
}

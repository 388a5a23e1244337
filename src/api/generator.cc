// Continues sequences with the run of a decoder: keeps which of their tokens the cache has, and
// packs the others into forward steps. Sequences join and leave between steps.
#include <deque>

#include "api/run_handle.h"
#include "api/sampling.h"
#include "runtime/clock.h"

using namespace weft;
using namespace weft::api;

namespace {

struct Sequence {
  uint64_t id;
  int32_t place;  // in the cache
  weft_sequence_config config;
  std::vector<int32_t> tokens, stops;
  size_t begun;       // number of tokens at the start
  size_t cached = 0;  // tokens
  size_t waiting() const { return tokens.size() - cached; }
};

// A row of a step: a token of a sequence, or padding.
struct Row {
  int32_t token = 0, position = 0, place = -1;
  uint64_t sequence = 0;  // that gets the logits of the row; 0: none
};

// An attention of a decoder, all of which have the same places; null: the model is no decoder.
const Node* attention_of(const Model& model) {
  constexpr std::string_view kInputs[] = {"tokens", "positions", "sequences"};
  if (model.inputs().size() != 3 || model.outputs().size() != 1) return nullptr;
  for (size_t i = 0; i < 3; ++i)
    if (model.node(model.inputs()[i]).name != kInputs[i]) return nullptr;
  for (const Node& node : model.nodes())
    if (node.op && node.op->name() == "cached_attention") return &node;
  return nullptr;
}

Sampling sampling_of(const weft_sequence_config& c) {
  return {.temperature = c.temperature,
          .top_k = c.top_k,
          .top_p = c.top_p,
          .min_p = c.min_p,
          .repetition_penalty = c.repetition_penalty,
          .seed = c.seed};
}

Status check_sampling(const weft_sequence_config& c) {
  const auto field = [](const char* name, double value, bool good, const char* expected) {
    return good ? Status()
                : Status(Code::invalid, cat("weft_sequence_config.", name, " is ", value,
                                            ", expected ", expected));
  };
  const auto share = [](double x) { return x >= 0 && x <= 1; };
  WEFT_TRY(field("temperature", c.temperature, c.temperature >= 0 && std::isfinite(c.temperature),
                 "a finite number from 0"));
  WEFT_TRY(field("top_p", c.top_p, share(c.top_p), "a number from 0 to 1"));
  WEFT_TRY(field("min_p", c.min_p, share(c.min_p), "a number from 0 to 1"));
  return field("repetition_penalty", c.repetition_penalty,
               c.repetition_penalty > 0 && std::isfinite(c.repetition_penalty),
               "a finite number above 0");
}

}  // namespace

struct weft_generator {
 public:
  weft_generator(weft_run& run, const Node& attention)
      : run_(run),
        context_(static_cast<size_t>(attention.attrs.dims[1])),
        vocabulary_(run.run->plan()
                        .model->node(run.run->plan().model->outputs().front())
                        .one.out.shape.last()),
        full_(static_cast<size_t>(run.run->plan().config.micro_batch_size)),
        small_(static_cast<size_t>(run.run->plan().config.short_size)),
        micro_batches_(static_cast<size_t>(run.run->plan().micro_batches(Mode::infer))) {
    for (int64_t place = attention.attrs.dims[0]; place-- > 0;)
      free_.push_back(static_cast<int32_t>(place));
  }

  ~weft_generator() {
    while (in_step_) {
      weft_event event = {};
      event.size = sizeof event;
      if (weft_run_poll(&run_, &event, -1, nullptr) <= 0) return;
      in_step_ = event.kind != WEFT_EVENT_DONE && event.kind != WEFT_EVENT_ERROR;
    }
  }

  Status add(std::span<const int32_t> tokens, const weft_sequence_config& config, uint64_t* id);
  Status remove(uint64_t id);
  Status poll(weft_token& token, int64_t timeout_ns, bool& found);

 private:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;
  Sequences::iterator find(uint64_t id) {
    return std::find_if(sequences_.begin(), sequences_.end(),
                        [id](const auto& sequence) { return sequence->id == id; });
  }
  void leave(Sequences::iterator at) {
    free_.push_back((*at)->place);
    sequences_.erase(at);
  }
  void choose_rows();
  Status submit();
  void give_rows_back();
  Status take(const weft_event& event);
  void add_token(Sequence& sequence, std::span<float> logits);

  weft_run& run_;
  const size_t context_;
  const int64_t vocabulary_;
  const size_t full_, small_, micro_batches_;  // rows of micro-batches, and their number
  std::vector<int32_t> free_;                  // places of the cache
  Sequences sequences_;
  uint64_t next_ = 1;
  std::vector<Row> rows_;
  bool small_only_ = false;  // the step has short micro-batches only
  bool in_step_ = false;
  std::deque<weft_token> made_;
  Candidates candidates_;
};

Status weft_generator::add(std::span<const int32_t> tokens, const weft_sequence_config& config,
                           uint64_t* id) {
  WEFT_TRY(check_sampling(config));
  if (config.n_stops) WEFT_TRY(require(config.stops, "stops"));
  if (tokens.empty() || tokens.size() > context_)
    return Status(Code::invalid, cat("the sequence has ", tokens.size(), " tokens, expected 1 to ",
                                     context_, ", the positions of the cache"));
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary_)
      return Status(Code::invalid,
                    cat("token ", i, " is ", tokens[i], ", expected 0 to ", vocabulary_ - 1));
  if (free_.empty())
    return Status(Code::again, cat("the cache has places for ", sequences_.size(),
                                   " sequences, and all are in use"));
  auto made = std::make_unique<Sequence>();
  made->config = config;
  made->tokens.assign(tokens.begin(), tokens.end());
  made->stops.assign(config.stops, config.stops + config.n_stops);
  made->begun = tokens.size();
  made->id = next_++;
  made->place = free_.back();
  *id = made->id;
  sequences_.push_back(std::move(made));
  free_.pop_back();
  return {};
}

Status weft_generator::remove(uint64_t id) {
  const auto at = find(id);
  if (at == sequences_.end())
    return Status(Code::not_found, cat("the generator has no sequence ", id));
  std::erase_if(made_, [id](const weft_token& token) { return token.sequence == id; });
  leave(at);
  return {};
}

// First the sequences that wait for one token, then parts of beginnings, as far as there are rows.
void weft_generator::choose_rows() {
  rows_.clear();
  const size_t most = full_ * micro_batches_;
  const auto add_rows = [&](Sequence& sequence) {
    const size_t count = std::min(sequence.waiting(), most - rows_.size());
    for (size_t i = 0; i < count; ++i, ++sequence.cached)
      rows_.push_back({.token = sequence.tokens[sequence.cached],
                       .position = static_cast<int32_t>(sequence.cached),
                       .place = sequence.place});
    if (count > 0 && sequence.waiting() == 0) rows_.back().sequence = sequence.id;
  };
  for (const auto& sequence : sequences_)
    if (sequence->waiting() == 1) add_rows(*sequence);
  for (const auto& sequence : sequences_) add_rows(*sequence);
  const auto rounded_up = [](size_t n, size_t unit) { return (n + unit - 1) / unit * unit; };
  const size_t rows = rows_.size(), rest = rows % full_;
  const size_t in_small = small_ ? rounded_up(rows, small_) : full_;
  small_only_ = in_small < full_ && in_small <= small_ * micro_batches_;
  if (small_only_)
    rows_.resize(in_small);
  else if (rest > 0 && rest <= small_)  // a short last micro-batch
    rows_.resize(rows - rest + small_);
  else
    rows_.resize(rounded_up(rows, full_));
}

Status weft_generator::submit() {
  const Desc desc{DType::i32, {static_cast<int64_t>(rows_.size()), 1}};
  const weft_desc shape = from_desc(desc);
  weft_error why = {};
  why.size = sizeof why;
  weft_tensor* inputs[3] = {};
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < 3 && status >= 0; ++i) {
    status = weft_tensor_new(&shape, &inputs[i], &why);
    if (status < 0) break;
    auto* to = static_cast<int32_t*>(inputs[i]->data);
    for (const Row& row : rows_) *to++ = i == 0 ? row.token : i == 1 ? row.position : row.place;
  }
  if (status >= 0) status = weft_run_submit(&run_, inputs, 3, WEFT_FORWARD, 0, &why);
  for (weft_tensor* input : inputs) weft_tensor_unref(input);
  in_step_ = status >= 0;
  if (in_step_) return {};
  give_rows_back();
  return Status(static_cast<Code>(status), why.text);
}

// The cache does not have the tokens of a step that was not submitted.
void weft_generator::give_rows_back() {
  for (const auto& sequence : sequences_)
    for (const Row& row : rows_)
      if (row.place == sequence->place)
        sequence->cached = std::min(sequence->cached, static_cast<size_t>(row.position));
}

void weft_generator::add_token(Sequence& sequence, std::span<float> logits) {
  const weft_sequence_config& c = sequence.config;
  const uint64_t added = sequence.tokens.size() - sequence.begun, index = c.first + added;
  penalize(logits, sequence.tokens, c.repetition_penalty);
  const int32_t token = sample(sampling_of(c), logits, c.number, index, candidates_);
  weft_token out = {};
  out.sequence = sequence.id;
  out.index = index;
  out.token = token;
  const bool stops =
      std::find(sequence.stops.begin(), sequence.stops.end(), token) != sequence.stops.end();
  out.end = stops                                   ? WEFT_SEQUENCE_STOP
            : c.limit > 0 && added + 1 >= c.limit   ? WEFT_SEQUENCE_LIMIT
            : sequence.tokens.size() + 1 > context_ ? WEFT_SEQUENCE_CONTEXT
                                                    : WEFT_SEQUENCE_CONTINUES;
  made_.push_back(out);
  sequence.tokens.push_back(token);
  if (out.end) leave(find(sequence.id));
}

Status weft_generator::take(const weft_event& event) {
  if (event.kind == WEFT_EVENT_DONE || event.kind == WEFT_EVENT_ERROR) in_step_ = false;
  if (event.kind == WEFT_EVENT_ERROR || event.kind == WEFT_EVENT_FAILED)
    return Status(static_cast<Code>(event.status), event.text ? event.text : "");
  if (event.kind != WEFT_EVENT_MICRO_BATCH || event.n_outputs != 1) return {};
  const weft_tensor& out = *event.outputs[0];
  const size_t begin = event.micro_batch * (small_only_ ? small_ : full_);
  auto* logits = static_cast<float*>(out.data);
  for (int64_t i = 0; i < out.desc.shape[0]; ++i, logits += vocabulary_) {
    const uint64_t id = rows_[begin + static_cast<size_t>(i)].sequence;
    // A sequence may have been removed while the step ran.
    if (const auto at = id ? find(id) : sequences_.end(); at != sequences_.end())
      add_token(**at, {logits, static_cast<size_t>(vocabulary_)});
  }
  return {};
}

Status weft_generator::poll(weft_token& token, int64_t timeout_ns, bool& found) {
  const int64_t begin = monotonic_ns();
  for (;;) {
    if (!made_.empty()) {
      fill_result(&token, made_.front());
      made_.pop_front();
      found = true;
      return {};
    }
    if (!in_step_) {
      if (sequences_.empty()) return {};
      choose_rows();
      WEFT_TRY(submit());
    }
    weft_event event = {};
    event.size = sizeof event;
    weft_error why = {};
    why.size = sizeof why;
    const int64_t left =
        timeout_ns < 0 ? -1 : std::max<int64_t>(0, timeout_ns - (monotonic_ns() - begin));
    const weft_status got = weft_run_poll(&run_, &event, left, &why);
    if (got < 0) return Status(static_cast<Code>(got), why.text);
    if (got == 0) return {};
    WEFT_TRY(take(event));
  }
}

weft_status weft_generator_new(weft_run* run, weft_generator** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(run->run->settled());
    const Node* attention = attention_of(*run->run->plan().whole);
    if (!attention)
      return Status(Code::invalid,
                    "the model of the run is no decoder; weft_model_decoder makes one");
    if (!run->run->plan().mode(Mode::infer).present)
      return Status(Code::state, "the plan was made without WEFT_STEPS_FORWARD");
    *out = std::make_unique<weft_generator>(*run, *attention).release();
    return {};
  });
}

void weft_generator_free(weft_generator* generator) { delete generator; }

weft_status weft_generator_add(weft_generator* generator, const int32_t* tokens, size_t n_tokens,
                               const weft_sequence_config* config, uint64_t* sequence,
                               weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(generator, "generator"));
    if (n_tokens) WEFT_TRY(require(tokens, "tokens"));
    WEFT_TRY(require(sequence, "sequence"));
    weft_sequence_config c;
    WEFT_TRY(read_config(config, "weft_sequence_config", c));
    return generator->add({tokens, n_tokens}, c, sequence);
  });
}

weft_status weft_generator_remove(weft_generator* generator, uint64_t sequence, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(generator, "generator"));
    return generator->remove(sequence);
  });
}

weft_status weft_generator_poll(weft_generator* generator, weft_token* token, int64_t timeout_ns,
                                weft_error* err) {
  bool found = false;
  const weft_status status = guard(err, [&]() -> Status {
    WEFT_TRY(require(generator, "generator"));
    WEFT_TRY(require(token, "token"));
    WEFT_TRY(check_result(*token));
    return generator->poll(*token, timeout_ns, found);
  });
  return status < 0 ? status : found;
}

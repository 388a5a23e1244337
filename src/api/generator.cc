// Continues sequences with the run of a decoder: keeps which of their tokens the cache has, and
// computes the others in steps. Sequences join and leave between tokens.
//
// A place of the cache keeps the tokens of the sequence that has left. A sequence that begins like
// it, as the next turn of a conversation, has these tokens in the cache from the start. Tokens that
// another place of the replica has are copied (api/shared_beginning.h).
#include <algorithm>
#include <array>

#include "api/cache_places.h"
#include "api/run_handle.h"
#include "api/sampling.h"
#include "api/step_rows.h"
#include "runtime/clock.h"

using namespace weft;
using namespace weft::api;

namespace {

struct Unref {
  void operator()(weft_tensor* tensor) const { weft_tensor_unref(tensor); }
};

// What a sequence has added: a token, or the failure with which it ended.
struct Made {
  weft_token token = {};
  Status failure = {};
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

}  // namespace

struct weft_generator {
 public:
  weft_generator(weft_run& run, const Node& attention)
      : run_(&run),
        context_(static_cast<size_t>(attention.attrs.dims[1])),
        vocabulary_(run.run->plan()
                        .model->node(run.run->plan().model->outputs().front())
                        .one.out.shape.last()),
        free_(run.run->plan().config.data, static_cast<int32_t>(attention.attrs.dims[0])),
        rows_(run.run->plan(), context_, free_) {
    // So that a failed allocation finds all sequences as they were before or after a token.
    sequences_.reserve(free_.size());
    made_.reserve(static_cast<size_t>(run.run->plan().config.micro_batch_size));
    run.user = &run_;
  }

  ~weft_generator() {
    if (!run_) return;
    run_->user = nullptr;
    run_->run->hold(false);
    if (in_step_) {
      const size_t begin = rows_.chosen().size();
      rows_.pad();
      feed_from(begin);
    }
    while (in_step_) {
      std::optional<weft_event> event;
      if (guard(nullptr, [&] { event = poll_run(*run_, -1); }) < 0 || !event) return;
      in_step_ = event->kind != WEFT_EVENT_DONE && event->kind != WEFT_EVENT_ERROR;
    }
  }

  Status add(std::span<const int32_t> tokens, const weft_sequence_config& config, uint64_t* id);
  Status remove(uint64_t id);
  Status poll(weft_token& token, int64_t timeout_ns, bool& found);
  // The descriptor of the run is readable if poll() need not wait for an event.
  void show_ready() {
    if (!run_) return;
    const bool begins = !in_step_ && !sequences_.empty() && run_->run->ready().ok();
    run_->run->hold(!made_.empty() || begins);
  }
  Status require_run() const {
    return run_ ? Status()
                : Status(Code::state,
                         "the run of the generator has ended: it or its mesh was freed");
  }
  // The callback of a sequence may not change the sequences.
  Status require_outside_choose() const {
    WEFT_TRY(require_run());
    return asking_ ? Status(Code::state, "choose of a sequence uses the generator") : Status();
  }
  Status require_ready() const {
    WEFT_TRY(require_outside_choose());
    return run_->run->ready();
  }

 private:
  Sequences::iterator find(uint64_t id) {
    return std::find_if(sequences_.begin(), sequences_.end(),
                        [id](const auto& sequence) { return sequence->id == id; });
  }
  void leave(Sequences::iterator at) {
    Sequence& sequence = **at;
    sequence.tokens.resize(sequence.cached);
    free_.give_back(sequence.place, std::move(sequence.tokens), sequence.weights);
    sequences_.erase(at);
  }
  Status begin_step();
  void write_rows(size_t begin);
  int32_t micro_batches_chosen() const {
    return static_cast<int32_t>(rows_.chosen().size() / rows_.per_micro_batch());
  }
  void feed();
  void feed_from(size_t begin);
  Status take(const weft_event& event);
  Status take_idle();
  Status ask(const Sequence& sequence, uint64_t index, std::span<float> logits);
  void add_token(Sequence& sequence, std::span<float> logits);

  weft_run* run_;  // null: the run has ended
  const size_t context_;
  const int64_t vocabulary_;
  CachePlaces free_;
  Sequences sequences_;
  uint64_t next_ = 1;
  bool in_step_ = false;
  bool asking_ = false;                                        // in the callback of a sequence
  std::array<std::unique_ptr<weft_tensor, Unref>, 3> inputs_;  // of the step
  StepRows rows_;                                              // of the step
  size_t delivered_ = 0;    // micro-batches whose logits have arrived
  std::vector<Made> made_;  // not returned yet, the first one last
  Candidates candidates_;
};

Status weft_generator::add(std::span<const int32_t> tokens, const weft_sequence_config& config,
                           uint64_t* id) {
  WEFT_TRY(check_sampling(sampling_of(config)));
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
  made->weights = run_->weights_written;
  made->turn = rows_.new_turn();
  const CachePlaces::Found taken = free_.take(tokens, made->weights);
  made->place = taken.place;
  made->cached = taken.cached;
  *id = made->id;
  sequences_.push_back(std::move(made));
  show_ready();
  return {};
}

Status weft_generator::remove(uint64_t id) {
  const size_t dropped =
      std::erase_if(made_, [id](const Made& made) { return made.token.sequence == id; });
  const auto at = find(id);
  if (at != sequences_.end())
    leave(at);
  else if (dropped == 0)
    return Status(Code::not_found, cat("the generator has no sequence ", id));
  show_ready();
  return {};
}

// To the inputs of the step, from that row on.
void weft_generator::write_rows(size_t begin) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    auto* const to = static_cast<int32_t*>(inputs_[i]->data);
    for (size_t at = begin; at < rows_.chosen().size(); ++at) {
      const Row& row = rows_.chosen()[at];
      to[at] = i == 0 ? row.token : i == 1 ? row.position : row.place;
    }
  }
}

Status weft_generator::begin_step() {
  // Cached keys and values are of use only with the weights that made them.
  for (const auto& sequence : sequences_) {
    if (sequence->weights == run_->weights_written) continue;
    sequence->weights = run_->weights_written;
    sequence->cached = 0;
  }
  rows_.choose(sequences_);
  const Desc desc{DType::i32, {static_cast<int64_t>(rows_.size()), 1}};
  weft_tensor* inputs[3] = {};
  for (size_t i = 0; i < inputs_.size(); ++i) {
    WEFT_TRY_ASSIGN(auto input, new_tensor(desc));
    inputs[i] = input.release();
    inputs_[i].reset(inputs[i]);
  }
  write_rows(0);
  delivered_ = 0;
  const Feeding feeding{
      .fed = rows_.is_short() ? micro_batches_chosen() : 0,
      .short_all = rows_.is_short(),
  };
  WEFT_TRY(submit_step(*run_, inputs, rows_.fills() ? WEFT_FILL : WEFT_FORWARD, 0, feeding));
  in_step_ = true;
  return {};
}

// The next tokens of sequences whose last logits have arrived. If no sequence is left, the step
// ends with padding.
void weft_generator::feed() {
  const size_t begin = rows_.chosen().size();
  rows_.choose_more(sequences_);
  const bool waits = delivered_ * rows_.per_micro_batch() < begin;
  if (rows_.chosen().size() == begin && !waits) rows_.pad();
  feed_from(begin);
}

// The rows from that one on, which have been chosen since the step began.
void weft_generator::feed_from(size_t begin) {
  if (rows_.chosen().size() == begin) return;
  write_rows(begin);
  run_->run->feed(micro_batches_chosen());
}

// Lets the program read and change the logits of the next token.
Status weft_generator::ask(const Sequence& sequence, uint64_t index, std::span<float> logits) {
  const weft_sequence_config& c = sequence.config;
  if (!c.choose) return {};
  weft_error err = {};
  err.size = sizeof err;
  const weft_choice choice = {.size = sizeof choice,
                              .reserved = 0,
                              .sequence = sequence.id,
                              .index = index,
                              .tokens = sequence.tokens.data(),
                              .n_tokens = sequence.tokens.size(),
                              .logits = logits.data(),
                              .n_logits = logits.size(),
                              .payload = c.payload,
                              .err = &err};
  asking_ = true;
  int32_t code = 0;
  const Status called = attempt([&] { code = c.choose(&choice); });
  asking_ = false;
  if (!called.ok())
    return Status(Code::user, cat("sequence ", sequence.id, ": choose threw: ", called.text()));
  return result_of(cat("sequence ", sequence.id, ": choose"), code, err);
}

void weft_generator::add_token(Sequence& sequence, std::span<float> logits) {
  weft_token out = {};
  out.sequence = sequence.id;
  const weft_sequence_config& c = sequence.config;
  const uint64_t added = sequence.tokens.size() - sequence.begun, index = c.first + added;
  if (const Status asked = ask(sequence, index, logits); !asked.ok()) {
    made_.push_back({out, asked});
    return leave(find(sequence.id));
  }
  penalize(logits, sequence.tokens, c.repetition_penalty);
  if (!can_sample(logits)) {
    const std::string whose = cat("sequence ", sequence.id);
    Status failure(Code::data, c.choose
                                   ? cat(whose, ": choose left no token, or a logit is NaN")
                                   : cat("a logit of ", whose, " is not finite: a weight or a ",
                                         "value of the model is not finite"));
    made_.push_back({out, std::move(failure)});
    return leave(find(sequence.id));
  }
  const int32_t token = sample(sampling_of(c), logits, c.number, index, candidates_);
  out.index = index;
  out.token = token;
  const bool stops =
      std::find(sequence.stops.begin(), sequence.stops.end(), token) != sequence.stops.end();
  out.end = stops                                   ? WEFT_SEQUENCE_STOP
            : c.limit > 0 && added + 1 >= c.limit   ? WEFT_SEQUENCE_LIMIT
            : sequence.tokens.size() + 1 > context_ ? WEFT_SEQUENCE_CONTEXT
                                                    : WEFT_SEQUENCE_CONTINUES;
  sequence.tokens.push_back(token);
  made_.push_back({out});
  if (out.end) leave(find(sequence.id));
}

Status weft_generator::take(const weft_event& event) {
  if (event.kind == WEFT_EVENT_DONE || event.kind == WEFT_EVENT_ERROR) in_step_ = false;
  if (event.kind == WEFT_EVENT_ERROR || event.kind == WEFT_EVENT_FAILED)
    return Status(static_cast<Code>(event.status), event.text ? event.text : "");
  if (event.kind != WEFT_EVENT_MICRO_BATCH || event.n_outputs != 1) return {};
  const weft_tensor& out = *event.outputs[0];
  const size_t begin = event.micro_batch * rows_.per_micro_batch();
  auto* logits = static_cast<float*>(out.data);
  Status failure;
  for (int64_t i = 0; i < out.desc.shape[0]; ++i, logits += vocabulary_) {
    const uint64_t id = rows_.chosen()[begin + static_cast<size_t>(i)].sequence;
    const auto at = id ? find(id) : sequences_.end();
    if (at == sequences_.end()) continue;  // it may have been removed while the step ran
    Sequence& sequence = **at;
    Status status = attempt([&] {
      add_token(sequence, {logits, static_cast<size_t>(vocabulary_)});
    });
    if (status.ok()) continue;
    --sequence.cached;  // these logits are computed again
    failure = std::move(status);
  }
  std::reverse(made_.begin(), made_.end());
  ++delivered_;
  feed();
  return failure;
}

// The run may fail without a step.
Status weft_generator::take_idle() {
  while (const auto event = poll_run(*run_, 0)) WEFT_TRY(take(*event));
  return {};
}

Status weft_generator::poll(weft_token& token, int64_t timeout_ns, bool& found) {
  const int64_t begin = monotonic_ns();
  for (;;) {
    if (!made_.empty()) {
      Made next = std::move(made_.back());
      made_.pop_back();
      fill_result(&token, next.token);
      found = next.failure.ok();
      return std::move(next.failure);
    }
    WEFT_TRY(run_->run->ready());
    if (!in_step_) {
      if (sequences_.empty()) return take_idle();
      if (const Status status = attempt([this] { return begin_step(); }); !status.ok()) {
        rows_.give_back(sequences_);
        return status;
      }
    }
    const int64_t left =
        timeout_ns < 0 ? -1 : std::max<int64_t>(0, timeout_ns - (monotonic_ns() - begin));
    const auto event = poll_run(*run_, left);
    if (!event) return {};
    WEFT_TRY(take(*event));
  }
}

weft_status weft_generator_new(weft_run* run, weft_generator** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(require_no_generator(run));
    WEFT_TRY(require_settled(*run));
    const Node* attention = attention_of(*run->run->plan().whole);
    if (!attention)
      return Status(Code::invalid,
                    "the model of the run is no decoder; weft_model_decoder makes one");
    const Plan& plan = run->run->plan();
    if (!plan.mode(Mode::infer).present)
      return Status(Code::state, "the plan was made without WEFT_STEPS_FORWARD");
    if (plan.config.micro_batches % plan.config.data != 0)
      return Status(Code::invalid, cat("the plan has ", plan.config.micro_batches,
                                       " micro-batches, expected a multiple of its ",
                                       plan.config.data, " replicas"));
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
    WEFT_TRY(generator->require_ready());
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
    WEFT_TRY(generator->require_ready());
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
    token->sequence = 0;  // of a failure that is not that of a sequence
    WEFT_TRY(generator->require_outside_choose());
    return generator->poll(*token, timeout_ns, found);
  });
  if (generator) generator->show_ready();
  return status < 0 ? status : found;
}

// Continues sequences with the run of a decoder: keeps which of their tokens the cache has, and
// packs the others into steps. Sequences join and leave between tokens.
//
// All tokens of a long beginning except the last one only fill the cache: their steps have no
// logits. While sequences have such tokens, these steps take turns with steps for next tokens.
//
// A place of the cache keeps the tokens of the sequence that has left. A sequence that begins like
// it, as the next turn of a conversation, has these tokens in the cache from the start.
//
// If the sequences are more than fit into a short micro-batch, they form groups, one in each, and a
// step has several rounds of them: the next tokens of a group are fed when its logits have arrived,
// while other ranks compute those of other groups.
//
// Replicas have caches of their own. Each sequence belongs to one, and its rows are in
// micro-batches of that replica.
#include <algorithm>
#include <array>

#include "api/cache_places.h"
#include "api/run_handle.h"
#include "api/sampling.h"
#include "runtime/clock.h"

using namespace weft;
using namespace weft::api;

namespace {

struct Sequence {
  uint64_t id;
  CachePlace place;
  weft_sequence_config config;
  std::vector<int32_t> tokens, stops;
  size_t begun;       // number of tokens at the start
  size_t cached = 0;  // tokens
  uint64_t weights;   // weft_run::weights_written when it joined
  size_t waiting() const { return tokens.size() - cached; }
};

struct Unref {
  void operator()(weft_tensor* tensor) const { weft_tensor_unref(tensor); }
};

// What a sequence has added: a token, or the failure with which it ended.
struct Made {
  weft_token token = {};
  Status failure = {};
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

size_t rounded_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

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
      : run_(run),
        context_(static_cast<size_t>(attention.attrs.dims[1])),
        vocabulary_(run.run->plan()
                        .model->node(run.run->plan().model->outputs().front())
                        .one.out.shape.last()),
        full_(static_cast<size_t>(run.run->plan().config.micro_batch_size)),
        small_(static_cast<size_t>(run.run->plan().config.short_size)),
        micro_batches_(static_cast<size_t>(run.run->plan().first_micro_batch(Mode::infer, 1))),
        fills_(run.run->plan().mode(Mode::fill).present),
        free_(run.run->plan().config.data, static_cast<int32_t>(attention.attrs.dims[0])),
        chosen_(static_cast<size_t>(run.run->plan().config.data)) {
    // So that a failed allocation finds all sequences as they were before or after a token.
    sequences_.reserve(chosen_.size() * static_cast<size_t>(attention.attrs.dims[0]));
    for (std::vector<Row>& rows : chosen_) rows.reserve(full_ * micro_batches_);
    rows_.reserve(chosen_.size() * full_ * micro_batches_);
    made_.reserve(full_);
    run_.generates = true;
  }

  ~weft_generator() {
    run_.generates = false;
    run_.run->hold(false);
    if (in_step_) feed_padding();
    while (in_step_) {
      std::optional<weft_event> event;
      if (guard(nullptr, [&] { event = poll_run(run_, -1); }) < 0 || !event) return;
      in_step_ = event->kind != WEFT_EVENT_DONE && event->kind != WEFT_EVENT_ERROR;
    }
  }

  Status add(std::span<const int32_t> tokens, const weft_sequence_config& config, uint64_t* id);
  Status remove(uint64_t id);
  Status poll(weft_token& token, int64_t timeout_ns, bool& found);
  // The descriptor of the run is readable if poll() need not wait for an event.
  void show_ready() { run_.run->hold(!made_.empty() || (!in_step_ && !sequences_.empty())); }

 private:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;
  Sequences::iterator find(uint64_t id) {
    return std::find_if(sequences_.begin(), sequences_.end(),
                        [id](const auto& sequence) { return sequence->id == id; });
  }
  static size_t replica_of(const Sequence& sequence) {
    return static_cast<size_t>(sequence.place.replica);
  }
  void leave(Sequences::iterator at) {
    Sequence& sequence = **at;
    sequence.tokens.resize(sequence.cached);
    free_.give_back(sequence.place, std::move(sequence.tokens), sequence.weights);
    sequences_.erase(at);
  }
  void add_rows(Sequence& sequence, size_t count, size_t most);
  void choose_next(size_t most);
  void choose_beginnings(size_t most, size_t left);
  void choose_step();
  void join_replicas();
  size_t rounds(size_t groups) const;
  Status begin_step();
  void write_rows(size_t begin);
  void feed();
  void feed_padding();
  void give_rows_back();
  Status take(const weft_event& event);
  void add_token(Sequence& sequence, std::span<float> logits);

  weft_run& run_;
  const size_t context_;
  const int64_t vocabulary_;
  const size_t full_, small_, micro_batches_;  // rows of micro-batches, and those of a replica
  const bool fills_;                           // the run makes steps without logits
  CachePlaces free_;
  Sequences sequences_;
  uint64_t next_ = 1;
  bool in_step_ = false;
  std::array<std::unique_ptr<weft_tensor, Unref>, 3> inputs_;  // of the step
  std::vector<std::vector<Row>> chosen_;                       // per replica
  std::vector<Row> rows_;    // of the step, as far as they are chosen
  bool fill_ = false;        // the step, or the one before it, has no logits
  bool small_only_ = false;  // the step has short micro-batches only
  size_t step_rows_ = 0;     // when all are chosen
  size_t delivered_ = 0;     // micro-batches whose logits have arrived
  std::vector<Made> made_;   // not returned yet, the first one last
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
  made->weights = run_.weights_written;
  const CachePlaces::Taken taken = free_.take(tokens, made->weights);
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

// Adds rows of the sequence, as far as its replica has fewer than `most`.
void weft_generator::add_rows(Sequence& sequence, size_t count, size_t most) {
  std::vector<Row>& rows = chosen_[replica_of(sequence)];
  count = std::min(count, most - rows.size());
  for (size_t i = 0; i < count; ++i, ++sequence.cached)
    rows.push_back({.token = sequence.tokens[sequence.cached],
                    .position = static_cast<int32_t>(sequence.cached),
                    .place = sequence.place.number});
  if (count > 0 && sequence.waiting() == 0) rows.back().sequence = sequence.id;
}

// Adds rows of the sequences that wait for one token.
void weft_generator::choose_next(size_t most) {
  for (const auto& sequence : sequences_)
    if (sequence->waiting() == 1) add_rows(*sequence, 1, most);
}

// Adds parts of beginnings, without the last `left` tokens of each.
void weft_generator::choose_beginnings(size_t most, size_t left) {
  for (const auto& sequence : sequences_)
    if (sequence->waiting() > std::max<size_t>(left, 1))
      add_rows(*sequence, sequence->waiting() - left, most);
}

// How often each group can have a micro-batch in the step that begins: until the last sequence
// ends, unless a token ends it before.
size_t weft_generator::rounds(size_t groups) const {
  size_t left = 0;
  for (const auto& sequence : sequences_) {
    const size_t room = context_ + 1 - sequence->tokens.size(),
                 added = sequence->tokens.size() - sequence->begun;
    left = std::max(left, sequence->config.limit ? sequence->config.limit - added : room);
  }
  return std::clamp<size_t>(left, 1, micro_batches_ / groups);
}

// The rows with which the next step begins, and their number at its end.
void weft_generator::choose_step() {
  for (std::vector<Row>& rows : chosen_) rows.clear();
  size_t next = 0;
  std::vector<size_t> waiting(chosen_.size());
  for (const auto& sequence : sequences_) {
    next += sequence->waiting() == 1;
    waiting[replica_of(*sequence)] += sequence->waiting();
  }
  // A beginning of few tokens takes no longer with logits.
  const size_t few = small_ ? std::min(full_ - 1, small_ * micro_batches_) : full_;
  const bool apart =
      fills_ && next < sequences_.size() &&
      rounded_up(*std::max_element(waiting.begin(), waiting.end()), small_ ? small_ : full_) > few;
  fill_ = apart && !(fill_ && next > 0);
  if (!fill_) choose_next(full_ * micro_batches_);
  if (fill_ || !apart) choose_beginnings(full_ * micro_batches_, fill_ ? 1 : 0);
  join_replicas();
}

// The rows of a replica begin with its first micro-batch. All but the last replica have the rows of
// all their micro-batches, and only the last micro-batch of a single replica is shorter than
// others.
void weft_generator::join_replicas() {
  size_t most = 0;
  bool one_each = true;
  for (const std::vector<Row>& rows : chosen_) {
    most = std::max(most, rows.size());
    one_each = one_each && std::all_of(rows.begin(), rows.end(),
                                       [](const Row& row) { return row.sequence != 0; });
  }
  const size_t in_small = small_ ? rounded_up(most, small_) : full_;
  small_only_ = in_small <= small_ * micro_batches_ && (one_each || in_small < full_);
  const size_t unit = small_only_ ? small_ : full_;
  rows_.clear();
  for (size_t r = 0; r < chosen_.size(); ++r) {
    rows_.resize(r * micro_batches_ * unit);
    rows_.insert(rows_.end(), chosen_[r].begin(), chosen_[r].end());
  }
  const size_t rest = rows_.size() % unit;
  if (chosen_.size() == 1 && rest > 0 && rest <= small_ && !small_only_)
    rows_.resize(rows_.size() - rest + small_);
  else
    rows_.resize(std::max(rounded_up(rows_.size(), unit),
                          ((chosen_.size() - 1) * micro_batches_ + 1) * unit));
  step_rows_ = rows_.size();
  if (chosen_.size() == 1 && small_only_ && one_each && most > small_)
    step_rows_ *= rounds(rows_.size() / small_);
}

// To the inputs of the step, from that row on.
void weft_generator::write_rows(size_t begin) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    auto* const to = static_cast<int32_t*>(inputs_[i]->data);
    for (size_t row = begin; row < rows_.size(); ++row)
      to[row] = i == 0 ? rows_[row].token : i == 1 ? rows_[row].position : rows_[row].place;
  }
}

Status weft_generator::begin_step() {
  choose_step();
  const Desc desc{DType::i32, {static_cast<int64_t>(step_rows_), 1}};
  weft_tensor* inputs[3] = {};
  for (size_t i = 0; i < inputs_.size(); ++i) {
    WEFT_TRY_ASSIGN(auto input, new_tensor(desc));
    inputs[i] = input.release();
    inputs_[i].reset(inputs[i]);
  }
  write_rows(0);
  delivered_ = 0;
  const Feeding feeding{
      .fed = small_only_ ? static_cast<int32_t>(rows_.size() / small_) : 0,
      .short_all = small_only_,
  };
  WEFT_TRY(submit_step(run_, inputs, fill_ ? WEFT_FILL : WEFT_FORWARD, 0, feeding));
  in_step_ = true;
  return {};
}

// The next tokens of sequences whose last logits have arrived, a micro-batch of them at a time. If
// no sequence is left, the step ends with padding.
void weft_generator::feed() {
  const size_t begin = rows_.size();
  if (begin == step_rows_) return;
  while (rows_.size() < step_rows_) {
    std::vector<Row>& rows = chosen_.front();
    rows.clear();
    choose_next(small_);
    if (!fills_) choose_beginnings(small_, 0);
    if (rows.empty()) break;
    rows.resize(small_);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  }
  if (rows_.size() == begin) {
    if (delivered_ * small_ == begin) feed_padding();
    return;
  }
  write_rows(begin);
  run_.run->feed(static_cast<int32_t>(rows_.size() / small_));
}

void weft_generator::feed_padding() {
  const size_t begin = rows_.size();
  if (begin == step_rows_) return;
  rows_.resize(step_rows_);
  write_rows(begin);
  run_.run->feed(static_cast<int32_t>(rows_.size() / small_));
}

// The cache does not have the tokens of a step that was not submitted.
void weft_generator::give_rows_back() {
  for (const auto& sequence : sequences_)
    for (const Row& row : chosen_[replica_of(*sequence)])
      if (row.place == sequence->place.number)
        sequence->cached = std::min(sequence->cached, static_cast<size_t>(row.position));
}

void weft_generator::add_token(Sequence& sequence, std::span<float> logits) {
  weft_token out = {};
  out.sequence = sequence.id;
  const weft_sequence_config& c = sequence.config;
  penalize(logits, sequence.tokens, c.repetition_penalty);
  if (!can_sample(logits)) {
    Status failure(Code::data, cat("a logit of sequence ", sequence.id, " is not finite: ",
                                   "a weight or a value of the model is not finite"));
    made_.push_back({out, std::move(failure)});
    return leave(find(sequence.id));
  }
  const uint64_t added = sequence.tokens.size() - sequence.begun, index = c.first + added;
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
  const size_t begin = event.micro_batch * (small_only_ ? small_ : full_);
  auto* logits = static_cast<float*>(out.data);
  Status failure;
  for (int64_t i = 0; i < out.desc.shape[0]; ++i, logits += vocabulary_) {
    const uint64_t id = rows_[begin + static_cast<size_t>(i)].sequence;
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
    if (!in_step_) {
      if (sequences_.empty()) return {};
      if (const Status status = attempt([this] { return begin_step(); }); !status.ok()) {
        give_rows_back();
        return status;
      }
    }
    const int64_t left =
        timeout_ns < 0 ? -1 : std::max<int64_t>(0, timeout_ns - (monotonic_ns() - begin));
    const auto event = poll_run(run_, left);
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
  if (generator) generator->show_ready();
  return status < 0 ? status : found;
}

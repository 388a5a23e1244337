#include "engine/trace.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"

namespace weft {

namespace {

const ActionProgram* action_of(const RankProgram& program, const Job& job) {
  return job.kind == JobKind::action ? &program.programs[static_cast<size_t>(job.program)]
                                     : nullptr;
}

std::string job_name(const RankProgram& program, const Job& job) {
  switch (job.kind) {
    case JobKind::clear: return "clear";
    case JobKind::send_ties: return "send ties";
    case JobKind::reduce: return "reduce";
    case JobKind::update: return "update";
    case JobKind::finish: return "finish";
    case JobKind::action: {
      const ActionProgram& action = *action_of(program, job);
      return Action{action.stage, action.kind, job.micro_batch}.text();
    }
  }
  return "?";
}

const char* kind_text(Kind kind) {
  switch (kind) {
    case Kind::F: return "forward";
    case Kind::I: return "input gradient";
    case Kind::W: return "weight gradient";
    case Kind::B: return "backward";
    case Kind::R: return "recompute";
    case Kind::O: return "update";
  }
  return "?";
}

std::string track_name(const Plan& plan, int32_t rank) {
  const std::vector<uint32_t> stages = plan.stages_on(rank);
  std::string out = cat("rank ", rank, stages.size() > 1 ? ": stages " : ": stage ");
  for (size_t i = 0; i < stages.size(); ++i) out += cat(i ? ", " : "", stages[i]);
  if (plan.config.data > 1) out += cat(", replica ", plan.replica_of(rank));
  return out;
}

class TraceWriter {
 public:
  TraceWriter(const Plan& plan, const std::vector<std::vector<TraceSpan>>& spans)
      : plan_(plan), spans_(spans) {
    for (const auto& rank : spans)
      for (const TraceSpan& s : rank) first_ = std::min(first_, s.time.begin);
  }

  std::string text(const char* title) {
    out_ = cat("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n",
               "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":\"weft, ",
               title, "\"}}");
    for (size_t r = 0; r < spans_.size(); ++r) {
      const auto rank = static_cast<int32_t>(r);
      out_ += cat(",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":", rank,
                  ",\"args\":{\"name\":\"", track_name(plan_, rank), "\"}}",
                  ",\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":0,\"tid\":", rank,
                  ",\"args\":{\"sort_index\":", rank, "}}");
      for (const TraceSpan& s : spans_[r]) add_slice(rank, s);
    }
    add_messages();
    return std::move(out_) + "\n]}\n";
  }

 private:
  struct Message {
    const TraceSpan* sent = nullptr;
    const TraceSpan* used = nullptr;
  };
  using Key = std::tuple<Mode, uint64_t, int32_t, int32_t>;  // step, edge, micro-batch

  // Steps between two updates have one number, and different sequences.
  static uint64_t step_of(const TraceSpan& s) { return s.step << 16 | s.sequence; }

  const RankProgram& program_of(int32_t rank, const TraceSpan& s) const {
    return plan_.mode(s.mode).ranks[static_cast<size_t>(rank)];
  }
  const Edge& edge_of(Mode mode, int32_t edge) const {
    return plan_.mode(mode).edges[static_cast<size_t>(edge)];
  }
  bool leaves(Mode mode, int32_t edge) const {
    return edge_of(mode, edge).from_rank != edge_of(mode, edge).to_rank;
  }
  static int64_t bytes_of(const Edge& edge) { return static_cast<int64_t>(edge.desc[0].bytes()); }
  // Chrome counts in microseconds.
  double micros(int64_t time) const { return static_cast<double>(time - first_) / 1000; }

  int64_t send(int32_t rank, const TraceSpan& s, const std::vector<int32_t>& edges,
               int32_t micro_batch) {
    int64_t bytes = 0;
    for (const int32_t edge : edges) {
      if (!leaves(s.mode, edge) || edge_of(s.mode, edge).from_rank != rank) continue;
      messages_[{s.mode, step_of(s), edge, micro_batch}].sent = &s;
      bytes += bytes_of(edge_of(s.mode, edge));
    }
    return bytes;
  }

  void use(const TraceSpan& s, const std::vector<int32_t>& edges, int32_t micro_batch) {
    for (const int32_t edge : edges) {
      if (!leaves(s.mode, edge)) continue;
      Message& message = messages_[{s.mode, step_of(s), edge, micro_batch}];
      if (!message.used) message.used = &s;
    }
  }

  void add_slice(int32_t rank, const TraceSpan& s) {
    const RankProgram& program = program_of(rank, s);
    const Job& job = program.jobs[static_cast<size_t>(s.job)];
    const ActionProgram* const action = action_of(program, job);
    std::string more;
    if (action) {
      use(s, action->waits, job.micro_batch);
      const int64_t bytes = send(rank, s, action->posts, job.micro_batch);
      send(rank, s, action->sums, 0);  // after the last micro-batch, which replaces the others
      more = cat(",\"stage\":", action->stage, ",\"micro_batch\":", job.micro_batch, ",\"kind\":\"",
                 kind_text(action->kind), "\",\"bytes\":", bytes);
    } else if (job.kind == JobKind::reduce) {
      const Bucket& bucket = program.buckets[static_cast<size_t>(job.program)];
      use(s, bucket.waits, 0);
      more = cat(",\"kind\":\"reduce\",\"bytes\":", send(rank, s, bucket.posts, 0));
    }
    const std::string category = action ? std::string(1, kind_letter(action->kind)) : "step";
    out_ +=
        cat(",\n{\"ph\":\"X\",\"pid\":0,\"tid\":", rank, ",\"name\":\"", job_name(program, job),
            "\",\"cat\":\"", category, "\",\"ts\":", micros(s.time.begin),
            ",\"dur\":", static_cast<double>(s.time.end - s.time.begin) / 1000,
            ",\"args\":{\"step\":", s.step, ",\"mode\":\"", mode_name(s.mode), "\"", more, "}}");
  }

  // An arrow from the end of the slice that sends to the begin of the first one that uses it.
  void add_messages() {
    int64_t id = 0;
    for (const auto& [key, message] : messages_) {
      if (!message.sent || !message.used) continue;
      const Edge& edge = edge_of(std::get<Mode>(key), std::get<2>(key));
      const std::string what = cat(",\"cat\":\"message\",\"name\":\"", edge_kind_name(edge.kind),
                                   "\",\"id\":", ++id, ",\"pid\":0,\"tid\":");
      // Inside of the slice, whose end is no longer a part of it.
      const int64_t end = std::max(message.sent->time.begin, message.sent->time.end - 1);
      out_ += cat(",\n{\"ph\":\"s\"", what, edge.from_rank, ",\"ts\":", micros(end),
                  ",\"args\":{\"micro_batch\":", std::get<3>(key), ",\"bytes\":", bytes_of(edge),
                  "}}", ",\n{\"ph\":\"f\",\"bp\":\"e\"", what, edge.to_rank,
                  ",\"ts\":", micros(message.used->time.begin), "}");
    }
  }

  const Plan& plan_;
  const std::vector<std::vector<TraceSpan>>& spans_;
  int64_t first_ = INT64_MAX;
  std::string out_;
  std::map<Key, Message> messages_;
};

}  // namespace

std::string trace_text(const Plan& plan, const std::vector<std::vector<TraceSpan>>& spans,
                       const char* title) {
  return TraceWriter(plan, spans).text(title);
}

}  // namespace weft

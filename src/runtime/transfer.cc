#include "runtime/transfer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "kernels/bf16_pack.h"
#include "kernels/fpenv.h"
#include "loop/thread.h"
#include "runtime/parameter_access.h"
#include "runtime/requests.h"
#include "runtime/weight_files.h"

namespace weft {

namespace {

using Slot = Requests::Slot;

constexpr size_t kPieceBytes = rpc::kPieceFloats * sizeof(float);
constexpr size_t kMostSlots = kTransferWindow / kPieceBytes;
constexpr size_t kSlotsOfARank = kTransferShare / kPieceBytes;

// A tensor on a rank.
struct Item {
  size_t tensor = 0;
  int32_t rank = 0;
};

// Tensors that are moved in sequence.
struct Lane {
  uint32_t type = 0;  // of its requests
  std::vector<Item> items;
  size_t next = 0;
  uint64_t offset = 0;  // in floats, of the next item
  size_t under_way = 0;
  bool done() const { return next == items.size(); }
};

class Transfer {
 public:
  // `only`: not -1: of this rank.
  Transfer(Run& run, uint32_t type, std::span<const TensorAt> tensors, int32_t only = -1);
  // Of a write: these ranks read tensors[i] from places[i] instead.
  void read_on(const std::vector<bool>& ranks, std::span<const std::vector<std::byte>> places);
  ~Transfer() { abandon(); }
  Status move(const TakePiece& take, const FillPiece& fill, const std::function<void()>& left);

 private:
  void make_lanes(int32_t only);
  void make_slots();
  Status ask_more();
  Status ask(size_t lane);
  Status take_answer(Slot& slot, bool wanted);
  Status move_here();
  bool more_to_ask() const;
  void abandon();
  uint64_t floats_of(size_t tensor) const;
  uint64_t floats_at_once(const Lane& lane, size_t tensor) const;
  rpc::Request advance(Lane& lane);

  Run& run_;
  const Plan& plan_;
  const uint32_t type_;
  const std::span<const TensorAt> tensors_;
  std::span<const std::vector<std::byte>> places_;
  const TakePiece* take_ = nullptr;
  const FillPiece* fill_ = nullptr;
  Lane here_;                // on the ranks of this process
  std::vector<Lane> lanes_;  // on each other rank
  size_t turn_ = 0;          // the lane whose request is next
  std::vector<Slot> slots_;
  std::vector<Slot*> free_;
  size_t under_way_ = 0;
};

Transfer::Transfer(Run& run, uint32_t type, std::span<const TensorAt> tensors, int32_t only)
    : run_(run), plan_(run.plan()), type_(type), tensors_(tensors) {
  make_lanes(only);
}

void Transfer::read_on(const std::vector<bool>& ranks,
                       std::span<const std::vector<std::byte>> places) {
  places_ = places;
  here_.type = rpc::kLoad;
  for (Lane& lane : lanes_)
    if (ranks[static_cast<size_t>(lane.items.front().rank)]) lane.type = rpc::kLoad;
}

// Each tensor is written to all ranks that have a copy, and read from its owner.
void Transfer::make_lanes(int32_t only) {
  struct Holder {
    int32_t rank;
    bool value, updates;
  };
  std::vector<std::vector<Holder>> holders(plan_.model->params().size());
  for (size_t r = 0; r < plan_.resident.size(); ++r)
    for (const ResidentParam& p : plan_.resident[r])
      if (p.owned || type_ == rpc::kWrite)
        holders[static_cast<size_t>(p.param)].push_back(
            {static_cast<int32_t>(r), static_cast<bool>(p.value()), p.updated});
  std::vector<Lane> by_rank(plan_.resident.size());
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const TensorAt& tensor = tensors_[t];
    for (const auto& [rank, value, updates] : holders[static_cast<size_t>(tensor.param)]) {
      if (tensor.part == Part::value ? !value : !updates) continue;
      if (only >= 0 && rank != only) continue;
      Lane& lane = run_.worker_here(rank) ? here_ : by_rank[static_cast<size_t>(rank)];
      lane.items.push_back({t, rank});
    }
  }
  here_.type = type_;
  for (Lane& lane : by_rank) {
    if (lane.items.empty()) continue;
    lane.type = type_;
    lanes_.push_back(std::move(lane));
  }
}

uint64_t Transfer::floats_of(size_t tensor) const {
  return static_cast<uint64_t>(plan_.model->param(tensors_[tensor].param).shape.elements());
}

// Of pieces that do not cross the mesh: whole rows of tiles of packed weights, if possible.
uint64_t Transfer::floats_at_once(const Lane& lane, size_t tensor) const {
  if (lane.type != rpc::kLoad) return rpc::kPieceFloats;
  const Shape& shape = plan_.model->param(tensors_[tensor].param).shape;
  const auto rows = static_cast<uint64_t>(kernels::kBf16Panel * shape.last());
  if (rows > rpc::kLoadFloats) return rpc::kPieceFloats;
  return std::max(rpc::kPieceFloats / rows, uint64_t{1}) * rows;
}

// All memory of the transfer is allocated here, so that answers allocate nothing.
void Transfer::make_slots() {
  size_t requests = 0;
  for (const Lane& lane : lanes_)
    for (const Item& item : lane.items)
      requests += type_ == rpc::kHash
                      ? 1
                      : (floats_of(item.tensor) + rpc::kPieceFloats - 1) / rpc::kPieceFloats;
  slots_.resize(std::min({requests, kMostSlots, lanes_.size() * kSlotsOfARank}));
  free_.reserve(slots_.size());
  for (Slot& slot : slots_) {
    slot.bytes.reserve(type_ == rpc::kHash ? sizeof(Digest) : kPieceBytes);
    free_.push_back(&slot);
  }
}

bool Transfer::more_to_ask() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.done(); });
}

// The next piece of a lane, in floats.
rpc::Request Transfer::advance(Lane& lane) {
  const size_t tensor = lane.items[lane.next].tensor;
  const uint64_t all = floats_of(tensor);
  const uint64_t rest = all - lane.offset;
  rpc::Request piece{.param = tensors_[tensor].param,
                     .part = tensors_[tensor].part,
                     .offset = lane.offset,
                     .count = 0,
                     .bytes = {}};
  if (type_ != rpc::kHash) piece.count = std::min(rest, floats_at_once(lane, tensor));
  lane.offset += piece.count;
  if (type_ == rpc::kHash || lane.offset == all) {
    ++lane.next;
    lane.offset = 0;
  }
  return piece;
}

// Sends as many requests as fit into the window, to the ranks in turn.
Status Transfer::ask_more() {
  for (size_t passed = 0; passed < lanes_.size() && !free_.empty();) {
    const size_t lane = turn_;
    turn_ = (turn_ + 1) % lanes_.size();
    if (lanes_[lane].done() || lanes_[lane].under_way == kSlotsOfARank) {
      ++passed;
      continue;
    }
    passed = 0;
    WEFT_TRY(ask(lane));
  }
  return {};
}

Status Transfer::ask(size_t lane) {
  Slot& slot = *free_.back();
  const Item& item = lanes_[lane].items[lanes_[lane].next];
  slot.rank = item.rank;
  slot.type = lanes_[lane].type;
  slot.lane = lane;
  slot.tensor = item.tensor;
  slot.request = advance(lanes_[lane]);
  if (slot.type == rpc::kLoad) {
    slot.request.bytes = places_[slot.tensor];
  } else if (type_ == rpc::kWrite) {
    slot.bytes.resize(slot.request.count * sizeof(float));
    WEFT_TRY((*fill_)(slot.tensor, slot.request.offset * sizeof(float), slot.bytes));
    slot.request.bytes = slot.bytes;
  }
  WEFT_TRY(run_.requests()->ask(slot));
  free_.pop_back();
  ++lanes_[lane].under_way;
  ++under_way_;
  return {};
}

// Gives the slot back. `wanted`: nothing has failed yet.
Status Transfer::take_answer(Slot& slot, bool wanted) {
  free_.push_back(&slot);
  --lanes_[slot.lane].under_way;
  --under_way_;
  WEFT_TRY(slot.status);
  const uint64_t expected = type_ == rpc::kHash   ? sizeof(Digest)
                            : type_ == rpc::kRead ? slot.request.count * sizeof(float)
                                                  : 0;
  if (slot.bytes.size() != expected)
    return Status(Code::protocol, cat("rank ", slot.rank, " answered ", slot.bytes.size(),
                                      " bytes, expected ", expected));
  if (type_ == rpc::kWrite || !wanted) return {};
  return (*take_)(slot.tensor, slot.request.offset * sizeof(float), slot.bytes);
}

// The next piece of the ranks of this process.
Status Transfer::move_here() {
  const Item& item = here_.items[here_.next];
  Worker& worker = *run_.worker_here(item.rank);
  const rpc::Request piece = advance(here_);
  const bool writes = type_ == rpc::kWrite;
  const Worker::ParamMemory memory =
      writes ? worker.writable_param(piece.param) : worker.param(piece.param);
  if (type_ == rpc::kHash) {
    WEFT_TRY_ASSIGN(const Digest digest, hash_part(plan_, memory, piece.param, piece.part));
    return (*take_)(item.tensor, 0, std::as_bytes(std::span(&digest, 1)));
  }
  WEFT_TRY_ASSIGN(PartRange range, PartRange::find(plan_, memory, piece.param, piece.part,
                                                   piece.offset, piece.count));
  const uint64_t offset = piece.offset * sizeof(float);
  if (!writes) return (*take_)(item.tensor, offset, std::as_bytes(range.read()));
  WEFT_TRY((*fill_)(item.tensor, offset, std::as_writable_bytes(range.floats())));
  range.store();
  return {};
}

void Transfer::abandon() {
  if (under_way_ > 0) run_.requests()->forget();
  under_way_ = 0;
}

Status Transfer::move(const TakePiece& take, const FillPiece& fill,
                      const std::function<void()>& left) {
  take_ = &take;
  fill_ = &fill;
  bool reported = !left;
  Status status = attempt([this] { make_slots(); });
  const auto go_on = [&status](auto&& body) {
    if (Status s = attempt(body); status.ok()) status = s;
  };
  for (;;) {
    if (status.ok()) go_on([this] { return ask_more(); });
    const bool work_here = status.ok() && !here_.done();
    const bool all_asked = !status.ok() || !more_to_ask();
    if (!reported && all_asked && !work_here &&
        (under_way_ == 0 || run_.requests()->all_answered())) {
      reported = true;
      left();
    }
    if (under_way_ == 0 && !work_here) return status;
    if (under_way_ > 0) {
      const Result<Slot*> slot = run_.requests()->take(!work_here);
      if (!slot.ok()) {  // no other answer will arrive
        abandon();
        return status.ok() ? slot.status() : status;
      }
      if (slot.value()) go_on([&] { return take_answer(*slot.value(), status.ok()); });
    }
    if (work_here && status.ok()) go_on([this] { return move_here(); });
  }
}

// The tensors that are pieces of larger ones.
struct Pieces {
  std::vector<TensorAt> tensors;  // of Plan::model
  std::vector<size_t> of;         // per tensor: the index of the whole tensor

  Pieces(const Plan& plan, std::span<const TensorAt> wholes) {
    for (size_t i = 0; i < wholes.size(); ++i)
      for (const ParamId piece : plan.pieces[static_cast<size_t>(wholes[i].param)]) {
        tensors.push_back({piece, wholes[i].part});
        of.push_back(i);
      }
  }
};

// Calls f(offset in the whole, bytes) for each range of these bytes of a piece that is contiguous
// in the whole. Offsets are in bytes.
template <typename Bytes, typename F>
Status each_run(const ParamPiece& piece, uint64_t offset, Bytes bytes, const F& f) {
  while (!bytes.empty()) {
    const auto run = piece.run_at(static_cast<int64_t>(offset / sizeof(float)));
    const size_t size = std::min(static_cast<size_t>(run.count) * sizeof(float), bytes.size());
    WEFT_TRY(f(static_cast<uint64_t>(run.in_whole) * sizeof(float), bytes.first(size)));
    bytes = bytes.subspan(size);
    offset += size;
  }
  return {};
}

// All ranks are in this process: a thread for each.
Status load_on_threads(Run& run, const Pieces& pieces, const FillPiece& fill) {
  std::vector<Status> results(static_cast<size_t>(run.plan().config.ranks));
  std::vector<std::unique_ptr<Thread>> threads;
  for (size_t r = 0; r < results.size(); ++r) {
    WEFT_TRY_ASSIGN(auto thread, Thread::start("weft-load", [&, r] {
                      const ComputeScope scope;
                      results[r] = attempt([&] {
                        Transfer transfer(run, rpc::kWrite, pieces.tensors,
                                          static_cast<int32_t>(r));
                        transfer.read_on({}, {});
                        return transfer.move({}, fill, {});
                      });
                    }));
    threads.push_back(std::move(thread));
  }
  threads.clear();
  for (const Status& status : results) WEFT_TRY(status);
  return {};
}

// Sends a request to the ranks of other processes that are set. Unsets those that refuse it.
Status ask_ranks(Run& run, uint32_t type, const rpc::Request& request, std::vector<bool>& ranks) {
  std::vector<Slot> slots;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r]) continue;
    slots.emplace_back();
    slots.back().rank = static_cast<int32_t>(r);
    slots.back().type = type;
    slots.back().request = request;
  }
  Status status;
  size_t asked = 0;
  while (status.ok() && asked < slots.size()) {
    status = attempt([&] { return run.requests()->ask(slots[asked]); });
    if (status.ok()) ++asked;
  }
  for (; asked > 0; --asked) {
    const auto slot = run.requests()->take(/*wait=*/true);
    if (!slot.ok()) {
      run.requests()->forget();
      return slot.status();
    }
    if (!slot.value()->status.ok()) ranks[static_cast<size_t>(slot.value()->rank)] = false;
  }
  return status;
}

std::vector<bool> far_ranks(Run& run) {
  std::vector<bool> out;
  for (int32_t r = 0; r < run.plan().config.ranks; ++r) out.push_back(!run.worker_here(r));
  return out;
}

// The ranks of other processes that have all these files.
Result<std::vector<bool>> offer_files(Run& run, std::span<const SafetensorsFile* const> files) {
  std::vector<bool> ranks = far_ranks(run);
  for (size_t i = 0; i < files.size(); ++i) {
    if (std::find(ranks.begin(), ranks.end(), true) == ranks.end()) break;
    FileOffer offer;
    offer.path = std::filesystem::absolute(files[i]->path()).string();
    WEFT_TRY_ASSIGN(offer.fingerprint, files[i]->fingerprint());
    const std::vector<std::byte> bytes = encode(offer);
    WEFT_TRY(ask_ranks(run, rpc::kOpen, {.offset = i, .count = 0, .bytes = bytes}, ranks));
  }
  for (size_t r = 0; r < ranks.size(); ++r)
    if (!run.worker_here(static_cast<int32_t>(r)))
      run.log().info([&] {
        return cat("rank ", r, ranks[r] ? " reads its weights itself" : " is sent its weights");
      });
  return ranks;
}

Status close_files(Run& run) {
  std::vector<bool> ranks = far_ranks(run);
  return ask_ranks(run, rpc::kClose, {.bytes = {}}, ranks);
}

Result<Digest> hash_cut(Run& run, const TensorAt& tensor) {
  std::vector<float> values(
      static_cast<size_t>(run.plan().whole->param(tensor.param).shape.elements()));
  WEFT_TRY(run.read(tensor.param, tensor.part, values));
  return hash_bytes(values.data(), values.size() * sizeof(float));
}

}  // namespace

Status read_tensors(Run& run, std::span<const TensorAt> tensors, const TakePiece& take,
                    const std::function<void()>& left) {
  const Pieces pieces(run.plan(), tensors);
  const auto take_runs = [&](size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
    const Param& param = run.plan().model->param(pieces.tensors[tensor].param);
    return each_run(param.piece, offset, bytes, [&](uint64_t at, std::span<const std::byte> part) {
      return take(pieces.of[tensor], at, part);
    });
  };
  return Transfer(run, rpc::kRead, pieces.tensors).move(take_runs, {}, left);
}

Status write_tensors(Run& run, std::span<const TensorAt> tensors, const FillPiece& fill) {
  run.forget_frozen_saved();
  const Pieces pieces(run.plan(), tensors);
  const auto fill_runs = [&](size_t tensor, uint64_t offset, std::span<std::byte> bytes) {
    const Param& param = run.plan().model->param(pieces.tensors[tensor].param);
    return each_run(param.piece, offset, bytes, [&](uint64_t at, std::span<std::byte> part) {
      return fill(pieces.of[tensor], at, part);
    });
  };
  return Transfer(run, rpc::kWrite, pieces.tensors).move({}, fill_runs, {});
}

Status load_tensors(Run& run, std::span<const TensorAt> tensors,
                    std::span<const Weights::Tensor> from) {
  run.forget_frozen_saved();
  const Pieces pieces(run.plan(), tensors);
  std::vector<const SafetensorsFile*> files;
  std::vector<std::vector<std::byte>> places;
  for (const size_t of : pieces.of) {
    const auto& [file, entry] = from[of];
    const auto at = std::find(files.begin(), files.end(), file);
    places.push_back(encode(TensorPlace{static_cast<uint32_t>(at - files.begin()), entry->name}));
    if (at == files.end()) files.push_back(file);
  }
  const auto fill = [&](size_t tensor, uint64_t offset, std::span<std::byte> bytes) {
    const Param& param = run.plan().model->param(pieces.tensors[tensor].param);
    const std::span floats(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
    const Status status =
        read_weights(from[pieces.of[tensor]], param.piece, offset / sizeof(float), floats);
    return run.requests() ? status.within("rank 0") : status;
  };
  if (!run.requests() && !run.is_inline()) return load_on_threads(run, pieces, fill);
  Transfer transfer(run, rpc::kWrite, pieces.tensors);
  const auto readers = offer_files(run, files);
  Status status = readers.status();
  if (status.ok()) {
    transfer.read_on(readers.value(), places);
    status = transfer.move({}, fill, {});
  }
  const Status closed = close_files(run);
  return status.ok() ? closed : status;
}

Result<std::vector<Digest>> hash_tensors(Run& run, std::span<const TensorAt> tensors) {
  std::vector<Digest> out(tensors.size());
  std::vector<TensorAt> whole;
  std::vector<size_t> of;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& pieces = run.plan().pieces[static_cast<size_t>(tensors[i].param)];
    if (pieces.size() == 1) {
      whole.push_back({pieces.front(), tensors[i].part});
      of.push_back(i);
    } else {
      WEFT_TRY_ASSIGN(out[i], hash_cut(run, tensors[i]));
    }
  }
  const auto take = [&](size_t tensor, uint64_t, std::span<const std::byte> bytes) {
    std::memcpy(&out[of[tensor]], bytes.data(), sizeof(Digest));
    return Status();
  };
  WEFT_TRY(Transfer(run, rpc::kHash, whole).move(take, {}, {}));
  return out;
}

}  // namespace weft

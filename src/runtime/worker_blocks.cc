// How a worker makes calls by blocks of rows: the rows of tensors that are stored in bf16 are
// converted in a part of the call's scratch memory.
#include <array>

#include "kernels/bf16.h"
#include "kernels/free_scratch.h"
#include "runtime/worker.h"

namespace weft {

namespace {

// Bytes of a row of a block, if its elements are of this type.
int64_t row_bytes(const View& block, DType dtype) {
  const Shape& shape = block.desc.shape;
  return shape.elements(1, shape.rank) * static_cast<int64_t>(size_of(dtype));
}

}  // namespace

std::vector<Worker::BoundCall> Worker::bind_blocks(const ProgramCall& call, size_t variant) {
  const int dims = std::max(0, call.in.front().desc[variant].shape.rank - 1);
  const auto view = [&](const PlacedOperand& operand) {
    const Shape& shape = operand.desc[variant].shape;
    View out{nullptr, {operand.converted ? DType::f32 : operand.desc[variant].dtype, {0}}};
    for (int i = dims; i < shape.rank; ++i) out.desc.shape[out.desc.shape.rank++] = shape[i];
    return out;
  };
  const auto views = [&view](const std::vector<PlacedOperand>& operands) {
    std::vector<View> out;
    for (const PlacedOperand& operand : operands) out.push_back(view(operand));
    return out;
  };
  BoundCall block;
  block.in = views(call.in);
  block.stash = views(call.stash);
  block.din = views(call.din);
  block.out = view(call.out);
  block.dout = view(call.dout);
  return std::vector<BoundCall>(static_cast<size_t>(call.blocks.parts), block);
}

Status Worker::run_blocks(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                          const Op& op, const Call& whole, int32_t micro_batch) {
  const Shape& shape = bound.in.front().desc.shape;
  const int64_t rows = shape.elements(0, shape.rank - 1);
  const int64_t blocks = (rows + call.blocks.rows - 1) / call.blocks.rows;
  const int64_t tiles = std::min(blocks, call.blocks.parts);
  FreeScratch free(call.blocks.parts);
  std::array<Status, kMostParts> ends;
  for_tiles(tiles_, static_cast<int>(tiles), [&](int tile) {
    Status& end = ends[static_cast<size_t>(tile)];
    const int part = free.take();
    for (int64_t b = tile * blocks / tiles; b < (tile + 1) * blocks / tiles && end.ok(); ++b) {
      const int64_t first = b * call.blocks.rows;
      end = run_block(program, call, bound, op, whole, micro_batch,
                      {part, first, std::min(call.blocks.rows, rows - first)});
    }
    free.give_back(part);
  });
  for (Status& end : ends) WEFT_TRY(std::move(end));
  return {};
}

Status Worker::run_block(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                         const Op& op, const Call& whole, int32_t micro_batch, Block rows) {
  BoundCall& block = bound.blocks[static_cast<size_t>(rows.part)];
  const int64_t part = rows.part * call.blocks.bytes;
  const auto stored = [&](const PlacedOperand& operand, const View& view) {
    const DType dtype = operand.desc.front().dtype;
    return static_cast<std::byte*>(at(program, operand.place, micro_batch)) +
           rows.first * row_bytes(view, dtype);
  };
  each_operand(call, block, [&](const PlacedOperand& operand, View& view, bool written) {
    if (!operand.place) return;
    view.desc.shape[0] = rows.count;
    view.data = stored(operand, view);
    if (!operand.converted) return;
    const auto* from = view.as<const kernels::Bf16>();
    view.data = static_cast<std::byte*>(at(program, operand.converted, micro_batch)) + part;
    if (!written) kernels::from_bf16(from, view.f32(), view.desc.elements());
  });
  SerialTiles here;
  Call some = whole;
  some.in = block.in;
  some.out = block.out;
  some.stash = block.stash;
  some.dout = block.dout;
  some.din = block.din;
  some.scratch = static_cast<std::byte*>(whole.scratch) + part;
  some.tiles = &here;
  WEFT_TRY(call.kind == CallKind::input_grad ? op.input_grad(some) : op.forward(some));
  each_operand(call, block, [&](const PlacedOperand& operand, const View& view, bool written) {
    if (operand.converted && written)
      kernels::to_bf16(view.f32(), reinterpret_cast<kernels::Bf16*>(stored(operand, view)),
                       view.desc.elements());
  });
  return {};
}

}  // namespace weft

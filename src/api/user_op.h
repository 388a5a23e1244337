// An op made from the caller's C callbacks.
#pragma once

#include <memory>
#include <string>

#include "ops/op.h"
#include "weft.h"

namespace weft::api {

class UserOp final : public Op {
 public:
  UserOp(const weft_op& op, void* payload) : op_(op), name_(op.name), payload_(payload) {
    op_.name = nullptr;  // the caller's text may end with the call
  }
  ~UserOp() override;
  void take_payload() {
    owns_payload_ = true;
  }  // until then the caller owns it, also if registration fails

  std::string_view name() const override { return name_; }
  uint32_t version() const override { return op_.version; }
  bool of_caller() const override { return true; }
  bool differentiable(int) const override { return op_.backward != nullptr; }
  bool trains_weights() const override { return op_.backward_params != nullptr; }
  Uses uses_input(const Attrs&) const override { return uses(op_.backward_reads); }
  Uses uses_weight(const Attrs&) const override { return uses(op_.backward_params_reads); }
  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override;
  Cost cost(const Attrs& attrs, std::span<const Desc> in, std::span<const Desc> weights,
            const Desc& out) const override;
  Status forward(const Call& call) const override;
  Status input_grad(const Call& call) const override;
  Status weight_grad(const Call& call) const override;

 private:
  static Uses uses(uint32_t reads);

  weft_op op_;
  std::string name_;
  void* payload_;
  bool owns_payload_ = false;
};

Result<std::shared_ptr<UserOp>> make_user_op(const weft_op& op, void* payload);

}  // namespace weft::api

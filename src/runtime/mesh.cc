#include "runtime/mesh.h"

#include "base/text.h"
#include "kernels/gemm.h"
#include "net/address.h"

namespace weft {

namespace {
constexpr std::string_view kTcp = "tcp://";
// For saving, and for this process's own connections, while unknown clients may connect.
constexpr int kHeld = 16;

Status check_keys(const MeshOptions& options) {
  if (!options.insecure || (!options.key && options.allowed.empty())) return {};
  return Status(Code::invalid,
                "keys cannot be checked without encryption; remove the keys, or --insecure "
                "(WEFT_MESH_INSECURE)");
}
}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::listen(const MeshOptions& options) {
  std::unique_ptr<Mesh> mesh(new Mesh(options, Part::start));
  WEFT_TRY(mesh->make_keys());
  WEFT_TRY(mesh->open(options.endpoint.empty() ? "ipc://" : options.endpoint));
  return mesh;
}

Result<std::unique_ptr<Mesh>> Mesh::join(const MeshOptions& options) {
  std::unique_ptr<Mesh> mesh(new Mesh(options, Part::serve));
  WEFT_TRY(mesh->take_keys());
  WEFT_TRY(mesh->open(options.listen));
  return mesh;
}

Status Mesh::make_keys() {
  WEFT_TRY(check_keys(options_));
  if (options_.insecure || !options_.endpoint.starts_with(kTcp)) return {};
  WEFT_TRY_ASSIGN(own_, options_.key ? KeyPair::of(*options_.key) : KeyPair::make());
  WEFT_TRY_ASSIGN(candidate_, KeyPair::make());
  return {};
}

Status Mesh::take_keys() {
  WEFT_TRY(check_keys(options_));
  WEFT_TRY_ASSIGN(zero_, parse_join(options_.endpoint));
  wipe(options_.endpoint);
  options_.endpoint = zero_.endpoint;
  if (!zero_.endpoint.starts_with(kTcp)) return {};
  const auto wrong = [this](std::string_view what) {
    return Status(Code::invalid, cat("'", zero_.endpoint, "': ", what));
  };
  if (options_.insecure && zero_.server)
    return wrong("it has a key, so rank 0 encrypts; remove --insecure (WEFT_MESH_INSECURE)");
  if (options_.insecure) return {};
  if (!zero_.server && options_.key) {
    WEFT_TRY_ASSIGN(const KeyPair shared, KeyPair::of(*options_.key));
    zero_.server = shared.public_key;
  }
  if (!zero_.server)
    return wrong(
        "expected the key that rank 0 gives out, tcp://HOST:PORT?key=KEY; without "
        "encryption, set --insecure (WEFT_MESH_INSECURE) "
        "here and at rank 0");
  if (!zero_.candidate && !options_.key)
    return wrong(
        "its key identifies rank 0 and does not permit to join; use all of the text that rank 0 "
        "gives out, or a key of this "
        "process that rank 0 allows (--key)");
  WEFT_TRY_ASSIGN(candidate_,
                  zero_.candidate ? Result<KeyPair>(*zero_.candidate) : KeyPair::of(*options_.key));
  WEFT_TRY_ASSIGN(own_, KeyPair::make());
  return {};
}

Status Mesh::open(const std::string& endpoint) {
  WEFT_TRY(check_has_no_key(endpoint));
  init_gemm();  // it changes the environment; the other thread would, while this one may read it
  WEFT_TRY_ASSIGN(thread_, LoopThread::make());
  return on_loop(loop(), [&]() -> Status {
    const std::string& example = endpoint.empty() ? options_.endpoint : endpoint;
    WEFT_TRY_ASSIGN(transport_,
                    make_transport(loop(), example, {.insecure = options_.insecure, .own = own_}));
    if (part_ == Part::serve) {
      WEFT_TRY(check_peer_endpoint(options_.endpoint, example).within("the endpoint of rank 0"));
    }
    std::string own = endpoint;
    if (own.empty()) {
      WEFT_TRY_ASSIGN(own, transport_->listening_endpoint(options_.endpoint));
    }
    admission_ = std::make_unique<Admission>(loop(), *transport_,
                                             LinkTimes{.silence = options_.peer_timeout_ms});
    loop().on_failure([this](const Status& why) { stop(why, why); });
    cancel_ = std::make_unique<Loop::Signal>(loop(), [this] {
      stop(Status(Code::canceled, "its own process canceled the run"),
           Status(Code::canceled, cat("the wait for other ranks at ", endpoint_, " was canceled")));
    });
    if (part_ == Part::start && candidate_) {
      std::vector<PublicKey> candidates = options_.allowed;
      candidates.push_back(candidate_->public_key);
      if (options_.key) candidates.push_back(own_.public_key);  // for candidates with this key
      admission_->admit_candidates(std::move(candidates));
    }
    if (own.starts_with(kTcp)) {
      WEFT_TRY_ASSIGN(held_, HeldDescriptors::hold(kHeld, cat("'", own, "': cannot listen")));
    }
    const Status listening = admission_->listen(own);
    if (!listening.ok() && endpoint.empty())
      return listening.within(
          cat("to join '", options_.endpoint, "' other ranks must be able to reach this one"));
    WEFT_TRY(listening);
    endpoint_ = admission_->endpoint();
    if (part_ == Part::start)
      join_text_ =
          candidate_ ? weft::join_text(endpoint_, own_.public_key, candidate_->secret) : endpoint_;
    return {};
  });
}

Status Mesh::reserve(Part part) {
  if (part != part_)
    return Status(
        Code::state,
        part == Part::start
            ? "the mesh was made to join the run of another process; it cannot start a run"
            : "the mesh was made to listen for other ranks; it cannot serve a run");
  Use use = Use::free;
  if (use_.compare_exchange_strong(use, Use::reserved)) return {};
  return Status(
      Code::state,
      cat("the mesh at ", endpoint_,
          use == Use::had_run ? " was used for a run already; another run needs another mesh"
                              : " is used by a run that has not started; free that run first"));
}

void Mesh::stop_listening() {
  admission_->stop_listening();
  held_.release();
}

void Mesh::stop(const Status& run, const Status& wait) {
  if (stopped_.ok()) stopped_ = run;
  if (on_stop_) on_stop_(run);
  if (admission_) admission_->stop(wait);
}

void Mesh::on_stop(std::function<void(const Status& why)> callback) {
  on_stop_ = std::move(callback);
  if (!stopped_.ok() && on_stop_) on_stop_(stopped_);
}

Mesh::~Mesh() {
  wipe(join_text_);
  if (!thread_) return;
  (void)on_loop(loop(), [this] {
    cancel_.reset();
    if (admission_ && part_ == Part::start) others_ = admission_->take_endpoints();
    admission_.reset();
  });
  // Objects that the admission retired are destroyed after this turn. Then the transport has no
  // connections any more.
  (void)on_loop(loop(), [this] {
    for (const std::string& endpoint : others_)
      if (endpoint != endpoint_) transport_->clear(endpoint);
  });
  (void)on_loop(loop(), [this] { transport_.reset(); });
}

}  // namespace weft

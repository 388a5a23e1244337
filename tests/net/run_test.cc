// A run whose door strangers come to: rank 0 over real sockets, the other end by hand.
#include <thread>

#include "graph/presets.h"
#include "peers.h"
#include "runtime/mesh.h"

namespace weft::test {
namespace {

std::shared_ptr<const Plan> small_plan() {
  PlanConfig config;
  config.ranks = 2;
  return make_plan(make_preset("mlp:layers=2,width=4", {}).take().model, config).take();
}

void say(End& end, FrameHeader header, uint16_t rank, std::span<const std::byte> payload) {
  header.source = rank;
  header.length = static_cast<uint32_t>(payload.size());
  header.total = payload.size();
  std::array<std::byte, kHeaderBytes> bytes;
  encode_header(header, payload, bytes);
  end.connection->send(0, bytes, payload, header.kind == FrameKind::hello ? 1 : 0);
}

Result<std::unique_ptr<Run>> start(const std::shared_ptr<const Plan>& plan, Mesh& mesh) {
  return start_mesh(plan, mesh, 1, [](void*) {});
}

TEST(RunAtADoor, AStrangerThatSaysItIsARankDisturbsNobody) {
  const auto plan = small_plan();
  const auto mesh = Mesh::listen({.endpoint = "tcp://127.0.0.1:0", .listen = {}}).take();
  Net net("tcp://");
  const auto stranger = net.dial(mesh->endpoint());
  ASSERT_TRUE(net.until([&] { return stranger->times_connected == 1; }));
  Identity identity = lobby_identity();
  identity.profile = "x";
  const std::vector<std::byte> hello = encode_hello(identity);
  say(*stranger, {.kind = FrameKind::hello}, 1, hello);
  ASSERT_TRUE(net.until([&] { return !stranger->tokens.empty(); }));

  std::thread rank([plan, endpoint = mesh->endpoint()] {
    const auto joined = Mesh::join({.endpoint = endpoint, .listen = {}}).take();
    const Status status = serve(*joined, plan, 1, nullptr);
    EXPECT_TRUE(status.ok()) << status.text();
  });
  {
    const auto run = start(plan, *mesh);
    EXPECT_TRUE(run.ok()) << run.status().text();
    EXPECT_TRUE(net.until([&] { return stranger->times_disconnected == 1; }));
  }
  rank.join();
  std::string why;
  EXPECT_EQ(mesh->refusals().read(why), 1u);
  EXPECT_NE(why.find("rank 1 refused: numeric profile x"), std::string::npos) << why;
}

}  // namespace
}  // namespace weft::test

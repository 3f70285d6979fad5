// RequestCache: a repeat gets the first one's answer.
#include "server/request_cache.h"

#include "gtest/gtest.h"
#include "kernelbox/v1/service.pb.h"

namespace kernelbox::server {
namespace {

using Turn = RequestCache::Turn;

const auto kNobody = [](const Answer*) { FAIL() << "called"; };

TEST(RequestCacheTest, RepeatsGetTheAnswer) {
  RequestCache cache;
  Answer answer;
  EXPECT_EQ(cache.Begin("a", answer, kNobody), Turn::kFirst);
  EXPECT_EQ(cache.Begin("b", answer, kNobody), Turn::kFirst);
  cache.Complete("a", {absl::NotFoundError("no"), std::make_shared<v1::FreeResponse>()});
  EXPECT_EQ(cache.Begin("a", answer, kNobody), Turn::kAnswered);
  EXPECT_EQ(answer.status, absl::NotFoundError("no"));
  EXPECT_NE(answer.message, nullptr);
}

TEST(RequestCacheTest, ARepeatWaitsForTheFirst) {
  RequestCache cache;
  Answer answer;
  absl::Status got = absl::UnknownError("nothing yet");
  ASSERT_EQ(cache.Begin("a", answer, kNobody), Turn::kFirst);
  ASSERT_EQ(cache.Begin("a", answer, [&](const Answer* first) { got = first->status; }),
            Turn::kRunning);
  cache.Complete("a", Answer());
  EXPECT_TRUE(got.ok());
}

TEST(RequestCacheTest, ARepeatTakesThePlaceOfAFirstThatDidNothing) {
  RequestCache cache;
  Answer answer;
  bool promoted = false;
  absl::Status last = absl::UnknownError("nothing yet");
  ASSERT_EQ(cache.Begin("a", answer, kNobody), Turn::kFirst);
  ASSERT_EQ(cache.Begin("a", answer, [&](const Answer* first) { promoted = first == nullptr; }),
            Turn::kRunning);
  ASSERT_EQ(cache.Begin("a", answer, [&](const Answer* first) { last = first->status; }),
            Turn::kRunning);
  cache.Abandon("a");
  EXPECT_TRUE(promoted);
  cache.Complete("a", Answer());
  EXPECT_TRUE(last.ok());

  ASSERT_EQ(cache.Begin("b", answer, kNobody), Turn::kFirst);
  cache.Abandon("b");
  EXPECT_EQ(cache.Begin("b", answer, kNobody), Turn::kFirst);
}

TEST(RequestCacheTest, ForgetsTheOldest) {
  RequestCache cache(2);
  Answer answer;
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_EQ(cache.Begin(id, answer, kNobody), Turn::kFirst);
    cache.Complete(id, Answer());
  }
  EXPECT_EQ(cache.Begin("b", answer, kNobody), Turn::kAnswered);
  EXPECT_EQ(cache.Begin("a", answer, kNobody), Turn::kFirst);
}

TEST(RequestCacheTest, NoIdIsAlwaysFirst) {
  RequestCache cache;
  Answer answer;
  EXPECT_EQ(cache.Begin("", answer, kNobody), Turn::kFirst);
  cache.Complete("", Answer());
  EXPECT_EQ(cache.Begin("", answer, kNobody), Turn::kFirst);
}

}  // namespace
}  // namespace kernelbox::server

#include "text/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/hash.h"
#include "base/text.h"
#include "text/byte_level.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace weft {

namespace {

using Pair = std::pair<uint32_t, uint32_t>;
struct PairHash {
  size_t operator()(const Pair& pair) const {
    return (uint64_t{pair.first} << 32 | pair.second) * 0x9e3779b97f4a7c15u;
  }
};

struct Word {
  std::vector<uint32_t> tokens;
  int64_t count = 0;
};

// A pair to merge, and the words that may have it.
struct Entry {
  int64_t count;
  Pair pair;
  std::vector<uint32_t> words;
  // The most frequent pair comes first, then the one with the lowest ids.
  bool operator<(const Entry& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  Status begin(std::string_view text, const std::vector<std::string>& specials);
  void merge(size_t vocabulary, int64_t min_count);
  Result<TrainedBpe> finish();

 private:
  void add_token(std::string token);
  Status read_words(std::string_view text);
  void count(const Pair& pair, int64_t change, uint32_t word);
  void enqueue();
  void merge_in_word(const Pair& pair, uint32_t id, uint32_t word);
  uint32_t merged_token(const Pair& pair);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  // Pairs that have new words, which are not in the queue yet.
  std::unordered_map<Pair, std::vector<uint32_t>, PairHash> changed_;
  std::vector<Entry> queue_;  // a heap
  std::vector<Pair> merges_;
};

void Trainer::add_token(std::string token) {
  if (ids_.emplace(token, static_cast<uint32_t>(tokens_.size())).second)
    tokens_.push_back(std::move(token));
}

Status Trainer::begin(std::string_view text, const std::vector<std::string>& specials) {
  for (const std::string& special : specials) add_token(special);
  std::vector<char32_t> alphabet;
  for (unsigned byte = 0; byte < 256; ++byte)
    alphabet.push_back(byte_letter(static_cast<unsigned char>(byte)));
  std::sort(alphabet.begin(), alphabet.end());
  for (char32_t letter : alphabet) {
    std::string token;
    append_code_point(token, letter);
    add_token(std::move(token));
  }
  WEFT_TRY(read_words(text));
  for (uint32_t i = 0; i < words_.size(); ++i) {
    const std::vector<uint32_t>& tokens = words_[i].tokens;
    for (size_t j = 0; j + 1 < tokens.size(); ++j)
      count({tokens[j], tokens[j + 1]}, words_[i].count, i);
  }
  enqueue();
  return {};
}

Status Trainer::read_words(std::string_view text) {
  PreTokenizer stage;
  stage.kind = PreTokenizer::Kind::byte_level;
  stage.uses_pattern = true;
  WEFT_TRY_ASSIGN(stage.pattern, byte_level_pattern());
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> seen;
  const std::vector<PreTokenizer> stages{stage};
  SearchBudget searches(text.size());
  std::vector<Growth> growth = growth_of(stages, text.size(), searches);
  const TextPart whole{std::string(text), 0};
  return split_words(stages, growth, whole, [&](std::string_view word) -> Status {
    const auto known = seen.find(word);
    if (known != seen.end()) {
      ++words_[known->second].count;
      return {};
    }
    seen.emplace(word, static_cast<uint32_t>(words_.size()));
    Word& added = words_.emplace_back();
    added.count = 1;
    while (!word.empty()) {
      std::string letter;
      append_code_point(letter, take_code_point(word));
      added.tokens.push_back(ids_.find(letter)->second);
    }
    return {};
  });
}

void Trainer::count(const Pair& pair, int64_t change, uint32_t word) {
  counts_[pair] += change;
  if (change < 0) return;
  std::vector<uint32_t>& words = changed_[pair];
  if (words.empty() || words.back() != word) words.push_back(word);
}

void Trainer::enqueue() {
  for (auto& [pair, words] : changed_) {
    const int64_t count = counts_[pair];
    if (count <= 0) continue;
    queue_.push_back({count, pair, std::move(words)});
    std::push_heap(queue_.begin(), queue_.end());
  }
  changed_.clear();
}

// Different pairs can make the same token.
uint32_t Trainer::merged_token(const Pair& pair) {
  const std::string token = tokens_[pair.first] + tokens_[pair.second];
  add_token(token);
  return ids_.find(token)->second;
}

void Trainer::merge_in_word(const Pair& pair, uint32_t id, uint32_t index) {
  Word& word = words_[index];
  std::vector<uint32_t>& tokens = word.tokens;
  size_t end = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool found =
        i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
    if (!found) {
      tokens[end++] = tokens[i];
      continue;
    }
    if (end > 0) {
      count({tokens[end - 1], pair.first}, -word.count, index);
      count({tokens[end - 1], id}, word.count, index);
    }
    if (i + 2 < tokens.size()) {
      count({pair.second, tokens[i + 2]}, -word.count, index);
      count({id, tokens[i + 2]}, word.count, index);
    }
    tokens[end++] = id;
    ++i;
  }
  tokens.resize(end);
}

void Trainer::merge(size_t vocabulary, int64_t min_count) {
  while (tokens_.size() < vocabulary && !queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end());
    Entry top = std::move(queue_.back());
    queue_.pop_back();
    const int64_t now = counts_[top.pair];
    if (top.count != now) {
      top.count = now;
      if (now <= 0) continue;
      queue_.push_back(std::move(top));
      std::push_heap(queue_.begin(), queue_.end());
      continue;
    }
    if (top.count < std::max<int64_t>(1, min_count)) break;
    const uint32_t id = merged_token(top.pair);
    merges_.push_back(top.pair);
    for (uint32_t word : top.words) merge_in_word(top.pair, id, word);
    enqueue();
  }
}

// A pair that was merged again, in words that came to have it later, has its last place.
Result<TrainedBpe> Trainer::finish() {
  TrainedBpe out;
  std::map<Pair, size_t> last;
  for (size_t i = 0; i < merges_.size(); ++i) last[merges_[i]] = i;
  for (size_t i = 0; i < merges_.size(); ++i)
    if (last[merges_[i]] == i)
      out.merges.emplace_back(tokens_[merges_[i].first], tokens_[merges_[i].second]);
  out.tokens = std::move(tokens_);
  return out;
}

}  // namespace

Result<TrainedBpe> train_bpe(std::string_view text, uint32_t vocabulary, uint32_t min_count,
                             const std::vector<std::string>& specials) {
  Trainer trainer;
  WEFT_TRY(trainer.begin(text, specials));
  trainer.merge(vocabulary, min_count);
  return trainer.finish();
}

}  // namespace weft

#include "data/builtin_grammar.h"

#include <array>
#include <string>
#include <vector>

namespace tessera {
namespace {

// The order of the settings in kSettings; nouns with a home are six times as likely there.
enum Home : int { kFarm, kTown, kSea, kForest, kAnywhere };
enum class Class { kPerson, kAnimal, kThing };

struct Noun {
  std::string_view singular, plural;  // with a leading blank
  Class type;
  Home home;
  std::uint64_t weight;
  bool woman = false;  // who "she" is
};

constexpr Noun kNouns[] = {
    {" farmer", " farmers", Class::kPerson, kFarm, 6},
    {" child", " children", Class::kPerson, kAnywhere, 5},
    {" teacher", " teachers", Class::kPerson, kTown, 6, true},
    {" doctor", " doctors", Class::kPerson, kTown, 4, true},
    {" baker", " bakers", Class::kPerson, kTown, 3},
    {" sailor", " sailors", Class::kPerson, kSea, 6},
    {" swimmer", " swimmers", Class::kPerson, kSea, 3, true},
    {" hunter", " hunters", Class::kPerson, kForest, 6},
    {" neighbour", " neighbours", Class::kPerson, kAnywhere, 3, true},
    {" dog", " dogs", Class::kAnimal, kAnywhere, 6},
    {" cat", " cats", Class::kAnimal, kTown, 5},
    {" horse", " horses", Class::kAnimal, kFarm, 6},
    {" cow", " cows", Class::kAnimal, kFarm, 4},
    {" sheep", " sheep", Class::kAnimal, kFarm, 3},
    {" gull", " gulls", Class::kAnimal, kSea, 5},
    {" seal", " seals", Class::kAnimal, kSea, 3},
    {" fox", " foxes", Class::kAnimal, kForest, 5},
    {" deer", " deer", Class::kAnimal, kForest, 4},
    {" mouse", " mice", Class::kAnimal, kAnywhere, 3},
    {" basket", " baskets", Class::kThing, kAnywhere, 5},
    {" cart", " carts", Class::kThing, kFarm, 5},
    {" bucket", " buckets", Class::kThing, kFarm, 4},
    {" book", " books", Class::kThing, kTown, 6},
    {" lamp", " lamps", Class::kThing, kTown, 3},
    {" boat", " boats", Class::kThing, kSea, 6},
    {" shell", " shells", Class::kThing, kSea, 4},
    {" tent", " tents", Class::kThing, kForest, 5},
    {" knife", " knives", Class::kThing, kForest, 3},
};

struct Name {
  BuiltinChoice first;  // opens a paragraph
  std::string_view inside;
  bool woman;
};
constexpr Name kNames[] = {
    {{"Anna", 8}, " Anna", true},    {{"Tom", 8}, " Tom", false},     {{"Mary", 6}, " Mary", true},
    {{"Peter", 6}, " Peter", false}, {{"Lucy", 4}, " Lucy", true},    {{"Jack", 4}, " Jack", false},
    {{"Clara", 3}, " Clara", true},  {{"Henry", 3}, " Henry", false},
};

constexpr std::array<std::string_view, 4> kSettings = {" on a farm", " in a small town",
                                                       " by the sea", " near the forest"};
constexpr std::string_view kPlaces[4][5] = {
    {" barn", " field", " stable", " well", " gate"},
    {" school", " market", " station", " square", " bakery"},
    {" harbour", " beach", " lighthouse", " pier", " cliff"},
    {" cabin", " river", " clearing", " bridge", " path"},
};
constexpr std::uint64_t kPlaceWeights[5] = {8, 6, 4, 3, 2};

// By class: what they can be. The first three of each class begin with a consonant, the last with
// a vowel, for "a" and "an".
constexpr BuiltinChoice kAdjectives[3][5] = {
    {{" young", 6}, {" tall", 4}, {" kind", 4}, {" friendly", 3}, {" old", 6}},
    {{" small", 6}, {" brown", 5}, {" hungry", 4}, {" wild", 3}, {" old", 3}},
    {{" red", 6}, {" heavy", 5}, {" wooden", 4}, {" broken", 3}, {" empty", 4}},
};
constexpr BuiltinChoice kMoods[3][5] = {
    {{" happy", 6}, {" tired", 5}, {" busy", 4}, {" late", 2}, {" hungry", 3}},
    {{" hungry", 6}, {" asleep", 4}, {" quiet", 3}, {" afraid", 3}, {" fast", 2}},
    {{" heavy", 5}, {" new", 4}, {" clean", 4}, {" empty", 3}, {" lost", 3}},
};

constexpr std::string_view kNumbers[19] = {
    "zero",     "one",     "two",     "three",     "four",    "five",   "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",  "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"};

// Who the next pronoun stands for.
struct Referent {
  Class type = Class::kPerson;
  bool plural = false;
  bool woman = false;
  bool protagonist = false;
};

std::string_view pronoun(const Referent& who, bool opens_sentence) {
  if (who.plural) return opens_sentence ? " They" : " they";
  if (who.type != Class::kPerson) return opens_sentence ? " It" : " it";
  if (who.woman) return opens_sentence ? " She" : " she";
  return opens_sentence ? " He" : " he";
}

std::string_view possessive(const Referent& who) {
  if (who.plural) return " their";
  if (who.type != Class::kPerson) return " its";
  return who.woman ? " her" : " his";
}

enum class Object { kNone, kThing, kFood, kWater, kAnimal, kPerson, kPlaceTo, kPlaceAt, kMood };

struct Verb {
  std::string_view singular, plural;
  std::uint64_t weight[3];  // by the subject's class
  Object object;
};

constexpr Verb kVerbs[] = {
    {" is", " are", {10, 12, 18}, Object::kMood},
    {" carries", " carry", {9, 0, 0}, Object::kThing},
    {" finds", " find", {6, 2, 0}, Object::kThing},
    {" eats", " eat", {6, 12, 0}, Object::kFood},
    {" drinks", " drink", {2, 7, 0}, Object::kWater},
    {" feeds", " feed", {6, 0, 0}, Object::kAnimal},
    {" chases", " chase", {1, 9, 0}, Object::kAnimal},
    {" helps", " help", {7, 0, 0}, Object::kPerson},
    {" follows", " follow", {2, 6, 0}, Object::kPerson},
    {" belongs", " belong", {0, 0, 8}, Object::kPerson},
    {" walks", " walk", {9, 0, 0}, Object::kPlaceTo},
    {" runs", " run", {3, 9, 0}, Object::kPlaceTo},
    {" waits", " wait", {6, 2, 0}, Object::kPlaceAt},
    {" sleeps", " sleep", {3, 8, 0}, Object::kPlaceAt},
    {" stands", " stand", {0, 3, 9}, Object::kPlaceAt},
    {" lies", " lie", {0, 2, 8}, Object::kPlaceAt},
    {" sings", " sing", {5, 0, 0}, Object::kNone},
    {" laughs", " laugh", {4, 0, 0}, Object::kNone},
};

class Paragraph {
 public:
  explicit Paragraph(BuiltinChooser& chooser) : chooser_(chooser) {}

  void walk() {
    opening();
    for (int sentences = 1;; ++sentences) {
      if (!sentence(sentences)) return;
    }
  }

 private:
  std::size_t pick(std::span<const BuiltinChoice> choices) { return chooser_.choose(choices); }

  void opening() {
    choices_.clear();
    for (const Name& name : kNames) choices_.push_back(name.first);
    name_ = &kNames[pick(choices_)];
    who_ = {Class::kPerson, false, name_->woman, true};
    choices_ = {{" lives", 3}, {" works", 2}};
    pick(choices_);
    choices_.clear();
    for (const std::string_view setting : kSettings) choices_.push_back({setting, 1});
    home_ = static_cast<int>(pick(choices_));
    chooser_.emit(".");
  }

  // False at the end of the paragraph.
  bool sentence(int so_far) {
    choices_ = {{pronoun(who_, true), 36},
                {name_->inside, who_.protagonist ? 4u : 14u},
                {" The", 22},
                {" Some", 6},
                {" Many", 3},
                {" In the morning,", 3},
                {" At night,", 3},
                {"\n", so_far < 4 ? 0u : 12u}};
    const std::size_t fixed = choices_.size();
    static constexpr std::string_view kCapitals[9] = {" One", " Two",   " Three", " Four", " Five",
                                                      " Six", " Seven", " Eight", " Nine"};
    for (const std::string_view number : kCapitals) choices_.push_back({number, 1});
    const std::size_t kind = pick(choices_);
    if (kind >= fixed) {
      sum(kind - fixed + 1);
      return true;
    }
    switch (kind) {
      case 0: break;
      case 1: who_ = {Class::kPerson, false, name_->woman, true}; break;
      case 2: who_ = described(false); break;
      case 3:
      case 4: who_ = described(true); break;
      case 7: return false;
      default: subject_after_time(); break;
    }
    predicate(true);
    return true;
  }

  void subject_after_time() {
    choices_ = {{pronoun(who_, false), 4}, {name_->inside, 3}, {" the", 4}};
    const std::size_t kind = pick(choices_);
    if (kind == 1) who_ = {Class::kPerson, false, name_->woman, true};
    if (kind == 2) who_ = described(false);
  }

  void sum(std::size_t a) {
    choices_ = {{" plus", 3}, {" is more than", a > 1 ? 1u : 0u}};
    const bool more = pick(choices_) == 1;
    std::vector<std::string> words;
    choices_.clear();
    for (const std::string_view number : kNumbers) words.push_back(" " + std::string(number));
    for (std::size_t b = 1; b < (more ? a : 10); ++b) choices_.push_back({words[b], 1});
    const std::size_t b = pick(choices_) + 1;
    if (!more) {
      chooser_.emit(" is");
      chooser_.emit(words[a + b]);
    }
    chooser_.emit(".");
  }

  std::uint64_t weight_here(const Noun& noun) const {
    if (noun.home == kAnywhere) return noun.weight * 3;
    return noun.home == home_ ? noun.weight * 8 : noun.weight;
  }

  // A noun, perhaps after adjectives that fit one of the classes asked for.
  const Noun& noun_of(Class type, bool plural) {
    choices_.clear();
    std::vector<const Noun*> nouns;
    for (const Noun& noun : kNouns) {
      if (noun.type != type) continue;
      choices_.push_back({plural ? noun.plural : noun.singular, weight_here(noun)});
      nouns.push_back(&noun);
    }
    return *nouns[pick(choices_)];
  }

  // The subject after "The", "Some", "Many": any noun; who it is for the next pronoun.
  Referent described(bool plural) {
    choices_.clear();
    for (const Noun& noun : kNouns) {
      choices_.push_back({plural ? noun.plural : noun.singular, weight_here(noun)});
    }
    const Noun& noun = kNouns[pick(choices_)];
    return {noun.type, plural, noun.woman, false};
  }

  // " the old dog", " a red cart", " an empty basket", " her book"; of a class.
  void phrase(Class type) {
    const auto& adjectives = kAdjectives[static_cast<int>(type)];
    choices_ = {{" the", 5}, {" a", 4}, {" an", 1}, {possessive(who_), 3}};
    const std::size_t determiner = pick(choices_);
    if (determiner == 2) {
      chooser_.emit(adjectives[4].text);
      noun_of(type, false);
      return;
    }
    // An adjective or at once the noun; the two never share a word.
    choices_.clear();
    std::uint64_t noun_weight = 0;
    std::vector<const Noun*> nouns;
    for (const Noun& noun : kNouns) {
      if (noun.type != type) continue;
      choices_.push_back({noun.singular, 2 * weight_here(noun)});
      noun_weight += weight_here(noun);
    }
    const std::size_t nouns_end = choices_.size();
    for (std::size_t i = 0; i < (determiner == 1 ? 4u : 5u); ++i) {
      choices_.push_back({adjectives[i].text, adjectives[i].weight * noun_weight / 20});
    }
    if (pick(choices_) >= nouns_end) noun_of(type, false);
  }

  void place() {
    choices_.clear();
    for (std::size_t i = 0; i < 5; ++i) {
      choices_.push_back({kPlaces[home_][i], kPlaceWeights[i]});
    }
    pick(choices_);
  }

  void object(const Verb& verb) {
    switch (verb.object) {
      case Object::kNone: break;
      case Object::kThing: phrase(Class::kThing); break;
      case Object::kAnimal: phrase(Class::kAnimal); break;
      case Object::kPerson:
        if (verb.singular == " belongs") chooser_.emit(" to");
        phrase(Class::kPerson);
        break;
      case Object::kFood:
        if (who_.type == Class::kPerson) {
          choices_ = {{" bread", 5}, {" an apple", 4}, {" cheese", 3}, {" warm soup", 3}};
        } else {
          choices_ = {{" grass", 5}, {" a fish", 3}, {" old bread", 2}, {" seeds", 2}};
        }
        pick(choices_);
        break;
      case Object::kWater:
        choices_ = {{" water", 5}, {" milk", 3}};
        pick(choices_);
        break;
      case Object::kPlaceTo:
        choices_ = {{" to the", 6}, {" past the", 2}};
        pick(choices_);
        place();
        break;
      case Object::kPlaceAt:
        choices_ = {{" near the", 5}, {" behind the", 3}, {" at the", 3}};
        pick(choices_);
        place();
        break;
      case Object::kMood: pick(kMoods[static_cast<int>(who_.type)]); break;
    }
  }

  // Verb, object and what may follow them; `tail`: once.
  void predicate(bool tail) {
    choices_.clear();
    for (const Verb& verb : kVerbs) {
      choices_.push_back(
          {who_.plural ? verb.plural : verb.singular, verb.weight[static_cast<int>(who_.type)]});
    }
    const Verb& verb = kVerbs[pick(choices_)];
    object(verb);
    if (!tail) {
      chooser_.emit(".");
      return;
    }
    choices_ = {{".", 64}, {" and", 14}, {" because", 14}, {" today.", 5}, {" again.", 4}};
    const std::size_t next = pick(choices_);
    if (next == 1) predicate(false);
    if (next != 2) return;
    chooser_.emit(pronoun(who_, false));
    chooser_.emit(who_.plural ? " are" : " is");
    pick(kMoods[static_cast<int>(who_.type)]);
    chooser_.emit(".");
  }

  BuiltinChooser& chooser_;
  const Name* name_ = nullptr;
  int home_ = 0;
  Referent who_;
  std::vector<BuiltinChoice> choices_;
};

}  // namespace

void walk_builtin_paragraph(BuiltinChooser& chooser) { Paragraph(chooser).walk(); }

}  // namespace tessera

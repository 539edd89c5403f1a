// Texts of which the entropy is known: a made-up language, by integer arithmetic from a seed; or bytes of a file, of which it is not.
#ifndef HALYARD_EXPERIMENTS_GRAMMAR_H
#define HALYARD_EXPERIMENTS_GRAMMAR_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace experiments {

/** Tokens, and for each -log of the probability that it had, given all before it: their mean is the least loss that a model can
 *  have. Not a number where nobody knows. */
struct Text {
    std::vector<int> tokens;
    std::vector<double> entropies;
};

/** SplitMix64 (Steele, Lea, Flood 2014). */
class Random {
public:
    explicit Random(std::uint64_t seed) : state(seed) {}
    std::uint64_t operator()() {
        state += 0x9e3779b97f4a7c15u;
        std::uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

private:
    std::uint64_t state;
};

/** Sentences like "the small dogs ( Ann sees Bob ) chase Ann .": verbs agree with their subjects, clauses in brackets come before the
 *  verb, an object is often the subject's name again, and words of a class are as frequent as Zipf says. */
class Grammar {
public:
    static constexpr int adjectives = 32, nouns = 48, verbs = 24, names = 40;
    static constexpr int period = 0, open = 1, close = 2, first_determiner = 3, first_adjective = first_determiner + 4,
                         first_noun = first_adjective + adjectives, first_verb = first_noun + 2 * nouns,
                         first_name = first_verb + 2 * verbs, vocabulary = first_name + names;

    explicit Grammar(std::uint64_t seed) : random(seed) {}

    /** The first `count` tokens of a text that begins with a sentence. */
    Text text(std::size_t count) {
        Text result;
        while (result.tokens.size() < count) {
            clause(result, 0);
            say(result, period);
        }
        result.tokens.resize(count);
        result.entropies.resize(count);
        return result;
    }

private:
    /** An index, as often as its weight says. */
    int choose(const std::vector<std::uint64_t> &weights) {
        std::uint64_t total = 0;
        for (const std::uint64_t weight : weights) {
            total += weight;
        }
        std::uint64_t left = random() % total;
        int index = 0;
        for (; left >= weights[static_cast<std::size_t>(index)]; index++) {
            left -= weights[static_cast<std::size_t>(index)];
        }
        entropy -= std::log(static_cast<double>(weights[static_cast<std::size_t>(index)]) / static_cast<double>(total));
        return index;
    }

    static std::vector<std::uint64_t> zipf(int count) {
        std::vector<std::uint64_t> weights;
        for (int rank = 1; rank <= count; rank++) {
            weights.push_back(static_cast<std::uint64_t>(65536 / rank));
        }
        return weights;
    }

    /** Ends what was chosen since the last token. */
    void say(Text &text, int token) {
        text.tokens.push_back(token);
        text.entropies.push_back(entropy);
        entropy = 0;
    }

    void noun_phrase(Text &text, int plural) {
        say(text, first_determiner + 2 * plural + choose({3, 1}));
        for (int i = 0; i < 2 && choose({3, 1}) == 1; i++) {
            say(text, first_adjective + choose(zipf(adjectives)));
        }
        say(text, first_noun + plural * nouns + choose(zipf(nouns)));
    }

    /** The name of the subject, if it has one, is half of the objects' names. */
    void object_name(Text &text, int subject) {
        const std::vector<std::uint64_t> weights = zipf(names);
        std::vector<std::uint64_t> mixed = weights;
        if (subject >= 0) {
            for (const std::uint64_t weight : weights) {
                mixed[static_cast<std::size_t>(subject)] += weight;
            }
        }
        say(text, first_name + choose(mixed));
    }

    void clause(Text &text, int depth) {
        const int kind = choose({3, 2, 3});  // singular, plural, a name
        const int plural = kind == 1 ? 1 : 0;
        int subject = -1;
        if (kind == 2) {
            subject = choose(zipf(names));
            say(text, first_name + subject);
        } else {
            noun_phrase(text, plural);
        }
        if (depth < 2 && choose({4, 1}) == 1) {
            say(text, open);
            clause(text, depth + 1);
            say(text, close);
        }
        say(text, first_verb + plural * verbs + choose(zipf(verbs)));
        switch (choose({3, 2, 2, 2})) {
        case 0:
            break;
        case 1:
            noun_phrase(text, 0);
            break;
        case 2:
            noun_phrase(text, 1);
            break;
        default:
            object_name(text, subject);
        }
    }

    Random random;
    double entropy = 0;  // of what was chosen since the last token
};

}  // namespace experiments

#endif

// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#include "core/random.hpp"
#include "lsh/collisions.hpp"
#include "lsh/dwta.hpp"
#include "lsh/selection.hpp"
#include "lsh/shared_rows.hpp"
#include "lsh/simhash.hpp"
#include "lsh/table_source.hpp"

#include <dslide/hashtable.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

using namespace dslide;

namespace {

constexpr std::uint64_t test_seed = 20260101;
constexpr int thread_counts[] = {1, 2, 3, 8};

RandomStream stream_of(std::uint64_t number) { return RandomStream(test_seed, Purpose::shuffle, number); }

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Matrix normal_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t number) {
    RandomStream random = stream_of(number);
    Matrix m(rows, cols);
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) m.row(r)[c] = static_cast<float>(random.normal());
    return m;
}

VectorRows rows_of(const Matrix &m, const float *last = nullptr) { return {m.row(0), m.stride, m.rows, last, nullptr}; }

/// codes[t * rows + i]
std::vector<std::uint32_t> codes_of(const HashFamily &family, const VectorRows &x, int threads = 1) {
    Arena arena(threads);
    std::vector<std::uint32_t> codes(at(family.tables() * x.count));
    for (int g = 0; g < family.groups(); ++g) family.hash(arena, g, x, codes.data() + family.first_table(g) * x.count);
    return codes;
}

struct Sample {
    double mean, standard_error;
};

Sample summary(const std::vector<double> &values) {
    const auto n = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    double square = 0;
    for (double v : values) square += (v - mean) * (v - mean);
    return {mean, std::sqrt(square / (n - 1) / n)};
}

double dot(const std::vector<double> &a, const std::vector<double> &b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

using Pair = std::pair<std::vector<double>, std::vector<double>>;

/// Two vectors at this angle: v = cos u + sin w, with w orthogonal to u.
Pair pair_at(double angle, std::int64_t dim, RandomStream &random) {
    std::vector<double> u(at(dim)), w(at(dim));
    for (double &x : u) x = random.normal();
    for (double &x : w) x = random.normal();
    const double overlap = dot(u, w) / dot(u, u);
    for (std::size_t j = 0; j < w.size(); ++j) w[j] -= overlap * u[j];
    const double ratio = std::sqrt(dot(u, u) / dot(w, w));
    for (std::size_t j = 0; j < w.size(); ++j) w[j] = std::cos(angle) * u[j] + std::sin(angle) * ratio * w[j];
    return {u, w};
}

/// Share of bits on which the vectors of each pair agree, every pair under hash functions of its own. A pair's last
/// coordinate is handed over apart from the others.
Sample agreement(std::int64_t pairs, std::uint64_t number, const std::function<Pair(RandomStream &)> &make) {
    constexpr int bits = 64;
    RandomStream random = stream_of(number);
    std::vector<double> shares;
    for (std::int64_t p = 0; p < pairs; ++p) {
        const auto [u, v] = make(random);
        const auto dim = static_cast<std::int64_t>(u.size()) - 1;
        Matrix m(2, dim);
        for (std::int64_t j = 0; j < dim; ++j) {
            m.row(0)[j] = static_cast<float>(u[at(j)]);
            m.row(1)[j] = static_cast<float>(v[at(j)]);
        }
        const float last[] = {static_cast<float>(u.back()), static_cast<float>(v.back())};
        const SimHash family(dim, bits, 1, random.bits());
        const auto codes = codes_of(family, rows_of(m, last));
        double agree = 0;
        for (std::size_t t = 0; t < bits; ++t) agree += codes[2 * t] == codes[2 * t + 1];
        shares.push_back(agree / bits);
    }
    return summary(shares);
}

constexpr double pi = 3.14159265358979323846;
constexpr double band_99 = 2.576; ///< standard errors of a two-sided 99 % band

double angle_between(const Pair &p) {
    return std::acos(dot(p.first, p.second) / std::sqrt(dot(p.first, p.first) * dot(p.second, p.second)));
}

} // namespace

static void test_lsh__simhash_bits_agree_with_one_minus_angle_over_pi(void **) {
    std::vector<double> deviations;
    std::uint64_t number = 0;
    for (const double degrees : {10.0, 45.0, 90.0, 135.0, 170.0})
        for (const std::int64_t dim : {24, 101, 128}) {
            const double angle = degrees * pi / 180;
            const Sample s =
                agreement(400, ++number, [&](RandomStream &random) { return pair_at(angle, dim, random); });
            deviations.push_back(std::abs(s.mean - (1 - angle / pi)) / s.standard_error);
        }
    // Of 15 bands of 99 % one may be left, by little; the mean of all is far inside.
    const double worst = *std::max_element(deviations.begin(), deviations.end());
    const auto outside = std::count_if(deviations.begin(), deviations.end(), [](double d) { return d > band_99; });
    assert_true(outside <= 1);
    assert_true(worst < 4);
}

static void test_lsh__simhash_bits_of_sparse_vectors_agree_as_the_angle_says(void **) {
    constexpr std::int64_t dim = 257, nonzeros = 6, shared = 3;
    std::vector<double> excess;
    RandomStream outer = stream_of(100);
    for (int p = 0; p < 400; ++p) {
        Pair pair{std::vector<double>(dim), std::vector<double>(dim)};
        for (int j = 0; j < nonzeros; ++j) {
            const auto place = at(static_cast<std::int64_t>(outer.below(dim)));
            pair.first[place] = outer.uniform();
            (j < shared ? pair.second[place] : pair.second[outer.below(dim)]) = outer.uniform();
        }
        const Sample s = agreement(2, 1000 + static_cast<std::uint64_t>(p), [&](RandomStream &) { return pair; });
        excess.push_back(s.mean - (1 - angle_between(pair) / pi));
    }
    const Sample s = summary(excess);
    assert_true(std::abs(s.mean) < band_99 * s.standard_error);
    assert_true(s.standard_error < 0.01); // the band says something
}

// Two different unit vectors are orthogonal. The transform of a unit vector has entries that are sums of `size` signs,
// 0 with probability binomial(size, size/2) / 2^size, and 0 counts as negative: both bits are set with probability q =
// (1 - zero) / 2 each.
static void test_lsh__simhash_bits_of_unit_vectors_agree_half_of_the_time(void **) {
    constexpr std::int64_t dim = 128;
    std::vector<double> shares;
    RandomStream random = stream_of(101);
    for (int p = 0; p < 2000; ++p) {
        Matrix m(2, dim);
        const auto a = random.below(dim), b = (a + 1 + random.below(dim - 1)) % dim;
        m.row(0)[a] = m.row(1)[b] = 1;
        const SimHash family(dim, 64, 1, random.bits());
        const auto codes = codes_of(family, rows_of(m));
        double agree = 0;
        for (std::size_t t = 0; t < 64; ++t) agree += codes[2 * t] == codes[2 * t + 1];
        shares.push_back(agree / 64);
    }
    const Sample s = summary(shares);
    const double zero = std::exp(std::lgamma(dim + 1.0) - 2 * std::lgamma(dim / 2 + 1.0) - dim * std::log(2.0));
    const double q = (1 - zero) / 2;
    assert_true(std::abs(s.mean - (q * q + (1 - q) * (1 - q))) < band_99 * s.standard_error);
    assert_true(s.standard_error < 0.005);
}

// (x, 1) and (x, -1) with |x| = 1 are orthogonal; with |x| = 0 they are opposite.
static void test_lsh__simhash_counts_the_last_coordinate_like_any_other(void **) {
    std::vector<double> deviations;
    for (const double size : {0.0, 0.5, 1.0, 3.0}) {
        constexpr std::int64_t dim = 100;
        const auto make = [&](RandomStream &random) {
            Pair p{std::vector<double>(dim + 1), std::vector<double>(dim + 1)};
            for (double &x : p.first) x = random.normal();
            p.first.back() = 0;
            const double norm = std::sqrt(dot(p.first, p.first));
            for (double &x : p.first) x *= size / norm;
            p.second = p.first;
            p.first.back() = 1;
            p.second.back() = -1;
            return p;
        };
        const Sample s = agreement(400, 200 + static_cast<std::uint64_t>(10 * size), make);
        const double angle = std::acos((size * size - 1) / (size * size + 1));
        deviations.push_back(std::abs(s.mean - (1 - angle / pi)) / std::max(s.standard_error, 1e-6));
    }
    for (const double d : deviations) assert_true(d < 3);
}

static void test_lsh__codes_use_their_full_range(void **) {
    std::string failing;
    for (const std::int32_t family_name : {DSLIDE_HASH_SIMHASH, DSLIDE_HASH_DWTA})
        for (const int bits : {1, 3, 6, 9}) {
            const auto family = make_hash_family(family_name, 64, 5, bits, test_seed);
            const int expected_bits =
                family_name == DSLIDE_HASH_DWTA ? std::max(3, bits / 3 * 3) : bits; // three bits a code
            if (family->bits() != expected_bits || family->tables() != 5) failing += "shape ";
            constexpr std::int64_t vectors = 16000; // 31 a bucket at 9 bits: an empty one has probability 3e-14
            const Matrix m = normal_matrix(vectors, 64, 300), last = normal_matrix(1, vectors, 301);
            const auto codes = codes_of(*family, rows_of(m, last.row(0)));
            for (std::int64_t t = 0; t < 5; ++t) {
                std::set<std::uint32_t> seen(codes.begin() + t * vectors, codes.begin() + (t + 1) * vectors);
                if (seen.size() != std::size_t{1} << family->bits() || *seen.rbegin() >> family->bits() != 0)
                    failing += std::to_string(family_name) + "/" + std::to_string(bits) + " ";
            }
        }
    assert_string_equal(failing.c_str(), "");
}

static void test_lsh__longest_codes_stay_below_two_to_the_24(void **) {
    const SimHash family(40, 100, 24, test_seed);
    const Matrix m = normal_matrix(500, 40, 301);
    const auto codes = codes_of(family, rows_of(m));
    std::uint32_t any = 0, all = ~0u;
    for (const std::uint32_t c : codes) any |= c, all &= c;
    assert_int_equal(any, (1u << 24) - 1);
    assert_int_equal(all, 0);
}

static void test_lsh__groups_of_tables_have_functions_of_their_own(void **) {
    const SimHash family(32, 20, 8, test_seed); // 4 tables a group
    const int groups = family.groups();
    const Matrix m = normal_matrix(2000, 32, 302);
    const auto codes = codes_of(family, rows_of(m));
    std::int64_t most_equal = 0;
    for (std::int64_t t = 0; t < 20; ++t)
        for (std::int64_t u = 0; u < t; ++u) {
            std::int64_t equal = 0;
            for (std::int64_t i = 0; i < m.rows; ++i) equal += codes[at(t * m.rows + i)] == codes[at(u * m.rows + i)];
            most_equal = std::max(most_equal, equal);
        }
    assert_int_equal(groups, 5);
    assert_true(most_equal < 50); // by chance 2000 / 256
}

static void test_lsh__families_do_not_depend_on_threads_or_neighbours(void **) {
    std::string failing;
    const Matrix m = normal_matrix(1000, 33, 303);
    std::vector<float> last(1000);
    RandomStream random = stream_of(304);
    for (float &x : last) x = static_cast<float>(random.normal());
    for (const std::int32_t name : {DSLIDE_HASH_SIMHASH, DSLIDE_HASH_DWTA}) {
        const auto family = make_hash_family(name, 33, 30, 6, test_seed);
        const auto codes = codes_of(*family, rows_of(m, last.data()));
        for (const int threads : thread_counts)
            if (codes_of(*family, rows_of(m, last.data()), threads) != codes) failing += "threads ";
        const VectorRows one{m.row(777), m.stride, 1, &last[777]};
        const auto alone = codes_of(*family, one);
        for (std::size_t t = 0; t < alone.size(); ++t)
            if (alone[t] != codes[t * 1000 + 777]) failing += "alone ";
        const auto again = make_hash_family(name, 33, 30, 6, test_seed), other = make_hash_family(name, 33, 30, 6, 5);
        if (codes_of(*again, rows_of(m)) != codes_of(*family, rows_of(m))) failing += "seed ";
        if (codes_of(*other, rows_of(m)) == codes_of(*family, rows_of(m))) failing += "one seed ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_lsh__dwta_sees_the_ranking_alone(void **) {
    constexpr std::int64_t dim = 50;
    const Dwta family(dim, 40, 3, test_seed);
    RandomStream random = stream_of(400);
    Matrix m(6, dim);
    std::vector<double> own(dim), other(dim);
    for (std::size_t j = 0; j < dim; ++j) own[j] = random.normal(), other[j] = 100 * random.uniform() + 1;
    std::sort(own.begin(), own.end());
    std::sort(other.begin(), other.end());
    std::vector<std::size_t> place(dim);
    std::iota(place.begin(), place.end(), 0u);
    for (std::size_t j = dim - 1; j > 0; --j) std::swap(place[j], place[random.below(j + 1)]);
    for (std::size_t j = 0; j < dim; ++j) {
        m.row(0)[j] = static_cast<float>(own[place[j]]);
        m.row(1)[j] = static_cast<float>(other[place[j]]); // other values, equal ranking
        m.row(2)[j] = static_cast<float>(std::exp(own[place[j]]));
        m.row(3)[j] = static_cast<float>(std::pow(own[place[j]], 3));
        m.row(4)[j] = static_cast<float>(3 * own[place[j]] - 7);
        m.row(5)[j] = static_cast<float>(-own[place[j]]); // turned round
    }
    const std::vector<float> last{-9, -9, -9, -900, -90, 9};
    const auto codes = codes_of(family, rows_of(m, last.data()));
    int different = 0, as_reverse = 0;
    for (std::size_t t = 0; t < 40; ++t) {
        for (std::size_t i = 1; i < 5; ++i) different += codes[t * 6 + i] != codes[t * 6];
        as_reverse += codes[t * 6 + 5] == codes[t * 6];
    }
    assert_int_equal(different, 0);
    assert_true(as_reverse < 5); // the largest of 8 is also the smallest: never; borrowed codes apart
}

static void test_lsh__dwta_of_sparse_vectors_borrows_codes(void **) {
    constexpr std::int64_t dim = 256, vectors = 400;
    const Dwta family(dim, 50, 1, test_seed);
    RandomStream random = stream_of(401);
    Matrix m(vectors, dim), scaled(vectors, dim), zero(1, dim);
    for (std::int64_t i = 0; i < vectors; ++i)
        for (int e = 0; e < 4; ++e) {
            const auto j = random.below(dim);
            m.row(i)[j] = static_cast<float>(random.uniform());
            scaled.row(i)[j] = 5 * m.row(i)[j];
        }
    const auto codes = codes_of(family, rows_of(m)), of_scaled = codes_of(family, rows_of(scaled)),
               of_zero = codes_of(family, rows_of(zero));
    std::vector<double> share(8);
    for (const std::uint32_t c : codes) share[c] += 1.0 / static_cast<double>(codes.size());
    // A bin holds a non-zero with probability 1 - (252/256)^8 = 0.118; with 16 more tries a code is found with 0.88, so
    // code 0 has 0.12 + 0.88 / 8 = 0.23. Without borrowing it would have 0.9.
    assert_true(share[0] > 0.12 && share[0] < 0.35);
    for (std::size_t c = 1; c < 8; ++c) assert_true(share[c] > 0.05 && share[c] < 0.2);
    assert_true(codes == of_scaled);
    assert_int_equal(*std::max_element(of_zero.begin(), of_zero.end()), 0);
}

namespace {

std::unique_ptr<HashFamily> simhash(std::int64_t dim, int tables, int bits) {
    return std::make_unique<SimHash>(dim, tables, bits, test_seed);
}

/// "" or what is wrong: every id once in each table, in the bucket of its code, ascending.
std::string check_tables(const HashTables &tables, const std::vector<std::uint32_t> &codes) {
    const std::int64_t n = tables.count();
    for (int t = 0; t < tables.family().tables(); ++t) {
        std::vector<int> seen(at(n));
        for (std::uint32_t b = 0; b < tables.buckets(); ++b) {
            std::int32_t before = -1;
            for (const std::int32_t id : tables.bucket(t, b)) {
                if (id < 0 || id >= n) return "an id out of range";
                if (id <= before) return "not ascending";
                if (codes[at(t * n + id)] != b) return "the wrong bucket";
                before = id;
                ++seen[at(id)];
            }
        }
        if (std::any_of(seen.begin(), seen.end(), [](int s) { return s != 1; })) return "an id missing or twice";
    }
    return "";
}

} // namespace

static void test_lsh__tables_hold_every_id_once_in_its_bucket(void **) {
    std::string failing;
    for (const int threads : thread_counts)
        for (const auto &[count, n_tables, bits] :
             {std::tuple{0, 3, 4}, {1, 3, 4}, {5000, 37, 5}, {300, 1, 1}, {300, 1, 12}, {300, 255, 3}, {64, 2, 24}}) {
            Arena arena(threads);
            HashTables tables(simhash(20, n_tables, bits));
            if (tables.built()) failing += "built too early ";
            const Matrix m = normal_matrix(count, 20, 500), other = normal_matrix(count / 2, 20, 501);
            tables.rebuild(arena, rows_of(other));
            tables.rebuild(arena, rows_of(m)); // of another size than before
            if (!tables.built() || tables.count() != count) failing += "count ";
            failing += check_tables(tables, codes_of(tables.family(), rows_of(m)));
        }
    assert_string_equal(failing.c_str(), "");
}

static void test_lsh__tables_come_back_from_their_codes(void **) {
    Arena arena(2);
    const Matrix m = normal_matrix(1000, 20, 502);
    HashTables tables(simhash(20, 11, 7)), restored(simhash(20, 11, 7));
    tables.rebuild(arena, rows_of(m));
    std::vector<std::int32_t> codes(1000 * 11), again(1000 * 11);
    tables.write_codes(codes.data());
    restored.restore(arena, codes.data(), 1000);
    restored.write_codes(again.data());
    bool equal = codes == again;
    for (int t = 0; t < 11; ++t)
        for (std::uint32_t b = 0; b < tables.buckets(); ++b) {
            const auto x = tables.bucket(t, b), y = restored.bucket(t, b);
            equal &= std::equal(x.begin(), x.end(), y.begin(), y.end());
        }
    assert_true(equal);
}

namespace {

struct QueryCase {
    HashTables tables;
    std::vector<std::uint32_t> codes; ///< of one query
    std::vector<int> collisions;      ///< of each id, counted one by one
    std::int64_t collided = 0;

    QueryCase(int n_tables, int bits, std::int64_t vectors) : tables(simhash(16, n_tables, bits)) {
        Arena arena(1);
        const Matrix m = normal_matrix(vectors, 16, 600), query = normal_matrix(1, 16, 601);
        tables.rebuild(arena, rows_of(m));
        codes = codes_of(tables.family(), rows_of(query));
        const auto all = codes_of(tables.family(), rows_of(m));
        for (std::int64_t i = 0; i < vectors; ++i) {
            int n = 0;
            for (int t = 0; t < n_tables; ++t) n += all[at(t * vectors + i)] == codes[at(t)];
            collisions.push_back(n);
            collided += n > 0;
        }
    }
    std::vector<std::int32_t> ask(CollisionCounter &counter, std::int64_t want, std::int64_t limit,
                                  std::uint64_t number, std::vector<std::int32_t> *counts = nullptr) const {
        RandomStream random = stream_of(number);
        std::vector<std::int32_t> ids(at(want)), found_counts(at(want));
        const std::int64_t n = counter.query(tables, codes.data(), 1, want, limit, random, ids.data(),
                                             counts ? found_counts.data() : nullptr);
        ids.resize(at(n));
        found_counts.resize(at(n));
        if (counts) *counts = found_counts;
        return ids;
    }
};

std::string check_query(const QueryCase &c, std::int64_t want, const std::vector<std::int32_t> &ids,
                        const std::vector<std::int32_t> &counts) {
    if (static_cast<std::int64_t>(ids.size()) != std::min(want, c.collided)) return "number found ";
    std::set<std::int32_t> distinct(ids.begin(), ids.end());
    if (distinct.size() != ids.size()) return "an id twice ";
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (counts[i] != c.collisions[at(ids[i])] || counts[i] == 0) return "a count ";
        if (i > 0 && counts[i] > counts[i - 1]) return "order ";
    }
    for (std::size_t id = 0; id < c.collisions.size() && !ids.empty(); ++id)
        if (c.collisions[id] > counts.back() && !distinct.count(static_cast<std::int32_t>(id))) return "one left out ";
    return "";
}

} // namespace

static void test_lsh__queries_find_what_collides_most(void **) {
    std::string failing;
    // Few collide with 12 bits, most with 2: two ways of counting.
    for (const auto &[n_tables, bits] : {std::pair{20, 12}, {20, 2}, {1, 1}, {255, 2}, {255, 13}, {1, 8}}) {
        const QueryCase c(n_tables, bits, 3000);
        CollisionCounter counter;
        for (const std::int64_t want : {0, 1, 2, 10, 100, 1000, 3000, 5000}) {
            std::vector<std::int32_t> counts;
            const auto ids = c.ask(counter, want, 3000, 7, &counts);
            failing += check_query(c, want, ids, counts);
            CollisionCounter fresh; // nothing is left from the queries before
            if (c.ask(fresh, want, 3000, 7) != ids) failing += "not zeroed ";
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_lsh__queries_draw_a_window_among_ties_only(void **) {
    const QueryCase c(20, 4, 3000);
    CollisionCounter counter;
    std::vector<std::int32_t> counts;
    constexpr std::int64_t want = 20;
    auto first = c.ask(counter, want, 3000, 1, &counts);
    const int cut = counts.back();
    std::set<std::int32_t> sure, tied_seen;
    std::int64_t tied = 0;
    for (std::size_t id = 0; id < c.collisions.size(); ++id) {
        if (c.collisions[id] > cut) sure.insert(static_cast<std::int32_t>(id));
        tied += c.collisions[id] == cut;
    }
    bool sure_always_in = true;
    for (std::uint64_t number = 0; number < 400; ++number) {
        const auto ids = c.ask(counter, want, 3000, number);
        const std::set<std::int32_t> found(ids.begin(), ids.end());
        sure_always_in &= std::includes(found.begin(), found.end(), sure.begin(), sure.end());
        for (const std::int32_t id : found)
            if (!sure.count(id)) tied_seen.insert(id);
    }
    assert_true(tied > want - static_cast<std::int64_t>(sure.size())); // there is a choice
    assert_true(sure_always_in);
    assert_int_equal(tied_seen.size(), tied); // every one of the tied has its turn
}

static void test_lsh__queries_look_at_a_window_of_long_buckets(void **) {
    const QueryCase c(30, 3, 2000);
    CollisionCounter counter;
    std::string failing;
    for (const std::int64_t limit : {1, 5, 100, 300}) {
        std::int64_t entries = 0, longest = 0;
        for (int t = 0; t < 30; ++t) {
            const auto size = static_cast<std::int64_t>(c.tables.bucket(t, c.codes[at(t)]).size());
            entries += std::min(size, limit);
            longest = std::max(longest, size);
        }
        std::set<std::int32_t> seen;
        for (std::uint64_t number = 0; number < 20; ++number) {
            std::vector<std::int32_t> counts;
            const auto ids = c.ask(counter, 2000, limit, number, &counts);
            if (std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) != entries) failing += "entries ";
            for (std::size_t i = 0; i < ids.size(); ++i)
                if (counts[i] > c.collisions[at(ids[i])]) failing += "too many ";
            seen.insert(ids.begin(), ids.end());
        }
        if (limit == 5 && seen.size() < 1000) failing += "always the same window ";
        if (longest <= limit) failing += "no bucket is long enough to tell ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_lsh__shared_rows_come_as_often_as_their_log_inclusion_says(void **) {
    std::string failing;
    const std::vector<std::int64_t> counts{5, 0, 1, 4, 90};
    for (const double power : {1.0, 0.5, 0.0})
        for (const std::int64_t draws : {1, 3, 20}) {
            SharedRows shared;
            shared.set_counts(counts, power);
            constexpr int steps = 20000;
            std::vector<int> times(counts.size());
            std::vector<std::int32_t> rows;
            std::vector<float> log_inclusion;
            double total = 0;
            for (const std::int64_t c : counts) total += c ? std::pow(static_cast<double>(c), power) : 0;
            for (std::int64_t step = 0; step < steps; ++step) {
                shared.draw(draws, test_seed, step, rows, log_inclusion);
                if (!std::is_sorted(rows.begin(), rows.end()) ||
                    std::adjacent_find(rows.begin(), rows.end()) != rows.end() || rows.empty())
                    failing += "not ascending ";
                for (std::size_t i = 0; i < rows.size(); ++i) {
                    const auto r = at(rows[i]);
                    ++times[r];
                    const double p = counts[r] ? std::pow(static_cast<double>(counts[r]), power) / total : 0;
                    const double inclusion = 1 - std::pow(1 - p, static_cast<double>(draws));
                    if (std::abs(log_inclusion[i] - std::log(inclusion)) > 1e-5) failing += "log inclusion ";
                }
            }
            for (std::size_t r = 0; r < counts.size(); ++r) {
                const double p = counts[r] ? std::pow(static_cast<double>(counts[r]), power) / total : 0;
                const double q = 1 - std::pow(1 - p, static_cast<double>(draws));
                const double error = std::sqrt(q * (1 - q) / steps);
                if (std::abs(times[r] / static_cast<double>(steps) - q) > 4 * error + 1e-9) failing += "frequency ";
            }
        }
    assert_string_equal(failing.substr(0, 200).c_str(), "");
}

static void test_lsh__shared_rows_without_counts_are_uniform(void **) {
    SharedRows shared, single;
    const std::vector<std::int64_t> none(10), one{7};
    shared.set_counts(none, 1);
    single.set_counts(one, 1);
    std::vector<int> times(10);
    std::vector<std::int32_t> rows, again;
    std::vector<float> log_inclusion;
    for (std::int64_t step = 0; step < 10000; ++step) {
        shared.draw(1, test_seed, step, rows, log_inclusion);
        ++times[at(rows[0])];
    }
    double chi = 0;
    for (const int t : times) chi += (t - 1000.0) * (t - 1000.0) / 1000;
    shared.draw(4, test_seed, 77, rows, log_inclusion);
    shared.draw(4, test_seed, 77, again, log_inclusion);
    const bool repeats = rows == again;
    shared.draw(1000, test_seed, 0, rows, log_inclusion);
    const std::size_t all = rows.size();
    single.draw(3, test_seed, 0, rows, log_inclusion);
    assert_true(chi < 27.9); // 99.9 % point of chi-square with 9 degrees of freedom
    assert_true(repeats);
    assert_int_equal(all, 10);
    assert_int_equal(rows.size(), 1);
    assert_true(log_inclusion[0] == 0);
}

namespace {

struct SelectionCase {
    static constexpr std::int64_t samples = 70;
    std::int64_t rows;
    std::vector<std::int64_t> label_ptr;
    std::vector<std::int32_t> label;
    Candidates hard;
    SelectionInput input;
    ActiveSet active;
    Selection selection;

    /// Sample i has i % 5 labels, all of them if `all_labels`. The offsets of the labels do not start at 0.
    SelectionCase(std::int64_t n_rows, std::int64_t candidates, std::int64_t fill, bool all_labels = false)
        : rows(n_rows) {
        RandomStream random = stream_of(700);
        label.assign(3, -1000);
        label_ptr.push_back(3);
        for (std::int64_t i = 0; i < samples; ++i) {
            std::set<std::int32_t> own;
            const std::int64_t wanted = all_labels ? rows : std::min(rows, i % 5);
            while (static_cast<std::int64_t>(own.size()) < wanted)
                own.insert(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(rows))));
            label.insert(label.end(), own.begin(), own.end());
            label_ptr.push_back(static_cast<std::int64_t>(label.size()));
        }
        input = {{samples, rows, label_ptr.data(), label.data(), nullptr}, nullptr, fill, false, 5, 9, rows, rows};
        if (candidates == 0) return;
        Arena arena(1);
        RandomSource(rows, 3).find(arena, Matrix(samples, 1), 0, candidates, hard);
        input.hard = &hard;
    }
    void build(int threads = 1) {
        Arena arena(threads);
        active.shared_log_inclusion.assign(active.shared.size(), 0.0f);
        selection.build(arena, input, active);
    }
    std::vector<std::int32_t> list(std::int64_t i) const {
        return {active.row.data() + active.begin[at(i)], active.row.data() + active.end[at(i)]};
    }
    std::string check() const;
};

std::string SelectionCase::check() const {
    if (active.n_samples != samples) return "samples ";
    const std::set<std::int32_t> shared(active.shared.begin(), active.shared.end());
    for (std::int64_t i = 0; i < samples; ++i) {
        const auto own = list(i);
        const std::set<std::int32_t> distinct(own.begin(), own.end());
        if (distinct.size() != own.size()) return "a row twice ";
        const auto labels = input.labels.cols(i);
        std::vector<std::int32_t> expected;
        for (std::size_t e = 0; e < labels.size(); ++e) {
            const std::int64_t place = active.label_place[at(label_ptr[at(i)] - label_ptr[0]) + e];
            if (shared.count(labels[e])) {
                if (place >= 0 || active.shared[at(~place)] != labels[e]) return "place of a shared label ";
            } else {
                if (place < active.begin[at(i)] || place >= active.end[at(i)] || active.row[at(place)] != labels[e])
                    return "place of a label ";
                expected.push_back(labels[e]);
            }
        }
        if (active.n_labels[at(i)] != static_cast<std::int32_t>(expected.size()) ||
            !std::equal(expected.begin(), expected.end(), own.begin()))
            return "labels first ";
        // Hard candidates follow in their order, without labels and shared rows.
        std::vector<std::int32_t> hard_expected;
        if (input.hard)
            for (std::int32_t c = 0; c < hard.count[at(i)]; ++c) {
                const std::int32_t row = hard.row[at(i * hard.stride + c)];
                if (!shared.count(row) && !std::count(labels.begin(), labels.end(), row)) hard_expected.push_back(row);
            }
        if (active.n_hard[at(i)] != static_cast<std::int32_t>(hard_expected.size()) ||
            !std::equal(hard_expected.begin(), hard_expected.end(), own.begin() + active.n_labels[at(i)]))
            return "hard rows ";
        const auto fill = static_cast<std::int64_t>(own.size()) - active.n_labels[at(i)] - active.n_hard[at(i)];
        if (fill < 0 || fill > input.random_fill) return "fill ";
        for (const std::int32_t row : own)
            if (row < 0 || row >= rows || shared.count(row)) return "a shared or unknown row ";
    }
    return "";
}

} // namespace

static void test_lsh__selection_joins_its_sources_without_repeats(void **) {
    std::string failing;
    for (const std::int64_t candidates : {0, 1, 30, 200})
        for (const std::int64_t fill : {0, 1, 40, 200})
            for (const std::int64_t shared : {0, 1, 50, 200})
                for (const bool all_labels : {false, true}) {
                    SelectionCase c(200, candidates, fill, all_labels);
                    for (std::int64_t s = 0; s < shared; ++s)
                        c.active.shared.push_back(static_cast<std::int32_t>(s * 200 / shared));
                    c.build();
                    failing += c.check();
                    c.active.shared.clear(); // no mark is left of the shared rows before
                    c.build(2);
                    failing += c.check();
                }
    SelectionCase one_class(1, 1, 1);
    one_class.build();
    failing += one_class.check();
    assert_string_equal(failing.c_str(), "");
}

static void test_lsh__selection_keeps_labels_when_no_bucket_hits(void **) {
    SelectionCase c(1000, 10, 0);
    std::fill(c.hard.count.begin(), c.hard.count.end(), 0);
    c.build();
    std::string failing = c.check();
    for (std::int64_t i = 0; i < SelectionCase::samples; ++i)
        if (static_cast<std::int64_t>(c.list(i).size()) != i % 5) failing += "rows ";
    assert_string_equal(failing.c_str(), "");
}

static void test_lsh__selection_does_not_depend_on_threads(void **) {
    std::vector<std::vector<std::int32_t>> lists;
    bool equal = true;
    for (const int threads : thread_counts) {
        SelectionCase c(500, 20, 20);
        c.active.shared = {1, 5, 77};
        c.build(threads);
        std::vector<std::vector<std::int32_t>> now;
        for (std::int64_t i = 0; i < SelectionCase::samples; ++i) now.push_back(c.list(i));
        if (lists.empty()) lists = now;
        equal &= lists == now;
    }
    assert_true(equal);
}

static void test_lsh__random_fill_is_uniform_and_knows_its_probability(void **) {
    constexpr std::int64_t rows = 50, fill = 10;
    std::vector<int> times(rows);
    std::int64_t drawn = 0;
    float log_inclusion = 0, without = -1;
    for (std::int64_t step = 0; step < 200; ++step) {
        SelectionCase c(rows, 0, fill);
        c.input.step = step;
        c.input.correction = true;
        c.build();
        log_inclusion = c.active.random_log_inclusion;
        for (std::int64_t i = 0; i < SelectionCase::samples; i += 5) // no labels
            for (const std::int32_t row : c.list(i)) ++times[at(row)], ++drawn;
    }
    SelectionCase c(rows, 0, fill);
    c.build();
    without = c.active.random_log_inclusion;
    // 10 draws of 50 with replacement: 50 (1 - 0.98^10) = 9.15 distinct rows; sd of the mean over 2800 lists is 0.02.
    assert_true(std::abs(static_cast<double>(drawn) / 2800 - 50 * (1 - std::pow(0.98, 10))) < 0.08);
    double chi = 0;
    const double expected = static_cast<double>(drawn) / rows;
    for (const int t : times) chi += (t - expected) * (t - expected) / expected;
    assert_true(chi < 85.4); // 99.9 % point of chi-square with 49 degrees of freedom
    assert_true(std::abs(log_inclusion - std::log(0.2)) < 1e-6);
    assert_true(without == 0);
}

static void test_lsh__random_source_gives_distinct_uniform_rows(void **) {
    std::string failing;
    constexpr std::int64_t samples = 2000;
    for (const auto &[rows, want] : {std::pair{20, 3}, {20, 15}, {20, 20}, {20, 40}, {1, 1}}) {
        Candidates first, again;
        Arena arena(1), other(3);
        RandomSource source(rows, test_seed);
        const Matrix h(samples, 4);
        source.find(arena, h, 5, want, first);
        source.find(other, h, 5, want, again);
        std::vector<int> times(at(rows));
        const std::int64_t got = std::min(rows, want);
        for (std::int64_t i = 0; i < samples; ++i) {
            if (first.count[at(i)] != got) failing += "count ";
            std::set<std::int32_t> distinct;
            for (std::int64_t c = 0; c < got; ++c) {
                const std::int32_t row = first.row[at(i * first.stride + c)];
                if (row < 0 || row >= rows) failing += "range ";
                if (row != again.row[at(i * again.stride + c)]) failing += "threads ";
                distinct.insert(row);
                ++times[at(row)];
            }
            if (static_cast<std::int64_t>(distinct.size()) != got) failing += "twice ";
        }
        const double p = static_cast<double>(got) / rows, error = std::sqrt(p * (1 - p) / samples);
        for (const int t : times)
            if (std::abs(t / static_cast<double>(samples) - p) > 4.5 * error) failing += "not uniform ";
    }
    assert_string_equal(failing.c_str(), "");
}

namespace {

/// An output layer whose rows lie around centres, and activations that lie around the same centres.
struct Clustered {
    static constexpr std::int64_t width = 64, centres = 100, rows = 3000, samples = 64;
    Matrix weight{rows, width}, h{samples, width};
    std::vector<float> bias = std::vector<float>(rows);

    explicit Clustered(double common) {
        RandomStream random = stream_of(800);
        const Matrix centre = normal_matrix(centres, width, 801);
        for (std::int64_t r = 0; r < rows; ++r) {
            bias[at(r)] = static_cast<float>(random.normal());
            for (std::int64_t j = 0; j < width; ++j)
                weight.row(r)[j] = centre.row(r % centres)[j] + static_cast<float>(0.7 * random.normal());
        }
        for (std::int64_t i = 0; i < samples; ++i)
            for (std::int64_t j = 0; j < width; ++j)
                h.row(i)[j] = centre.row(i)[j] + static_cast<float>(common + 0.5 * random.normal());
    }
    std::vector<std::int32_t> best(std::int64_t i, std::int64_t k) const {
        std::vector<std::pair<double, std::int32_t>> scored;
        for (std::int64_t r = 0; r < rows; ++r) {
            double z = bias[at(r)];
            for (std::int64_t j = 0; j < width; ++j) z += static_cast<double>(h.row(i)[j]) * weight.row(r)[j];
            scored.emplace_back(-z, static_cast<std::int32_t>(r));
        }
        std::partial_sort(scored.begin(), scored.begin() + k, scored.end());
        std::vector<std::int32_t> ids;
        for (std::int64_t j = 0; j < k; ++j) ids.push_back(scored[at(j)].second);
        return ids;
    }
};

TableSource source_of(std::int32_t family, bool centring, int bits = 6, std::int64_t head = 0) {
    return TableSource(make_hash_family(family, Clustered::width, 50, bits, test_seed), Clustered::width,
                       {centring, 3, 10, 2.0, head, test_seed});
}

bool prepare(TableSource &source, Arena &arena, const Clustered &c, std::int64_t step, bool force = false) {
    const bool due = source.observe(c.h, step);
    if (!due && !force) return false;
    const TableSource::Rows rows{c.weight.row(0), c.weight.stride, c.weight.rows, c.bias.data()};
    source.rebuild(arena, rows, source.measure(arena, rows), step);
    return true;
}

double recall(TableSource &source, const Clustered &c, std::int64_t want) {
    Arena arena(2);
    prepare(source, arena, c, 0);
    Candidates found;
    source.find(arena, c.h, 0, want, found);
    double hits = 0;
    for (std::int64_t i = 0; i < Clustered::samples; ++i) {
        const std::int32_t *first = found.row.data() + i * found.stride;
        for (const std::int32_t id : c.best(i, 20)) hits += std::count(first, first + found.count[at(i)], id) > 0;
    }
    return hits / (20.0 * Clustered::samples);
}

} // namespace

static void test_lsh__tables_recall_the_true_top_rows(void **) {
    const Clustered plain(0), shifted(3);
    TableSource simhash_source = source_of(DSLIDE_HASH_SIMHASH, true), dwta_source = source_of(DSLIDE_HASH_DWTA, true),
                shifted_source = source_of(DSLIDE_HASH_SIMHASH, true),
                uncentred_source = source_of(DSLIDE_HASH_SIMHASH, false);
    // 150 of 3000 rows: 0.05 by chance.
    const double simhash_recall = recall(simhash_source, plain, 150), dwta_recall = recall(dwta_source, plain, 150),
                 shifted_recall = recall(shifted_source, shifted, 150),
                 uncentred_recall = recall(uncentred_source, shifted, 150);
    assert_true(simhash_recall > 0.5);
    assert_true(dwta_recall > 0.3);
    assert_true(shifted_recall > 0.4);
    assert_true(shifted_recall > uncentred_recall); // what centring is for
}

namespace {

/// What the tables' rows should be: [w - v ; (c - mean c) / s], with c = b + m.w, and the query of sample 0.
struct Centred {
    std::vector<double> mean = std::vector<double>(Clustered::width), mean_row = mean, query;
    std::vector<double> last; ///< c - mean c
    double scale;

    explicit Centred(const Clustered &c) {
        const auto rows = double{Clustered::rows}, samples = double{Clustered::samples};
        double h_square = 0, w_square = 0, c_mean = 0, c_square = 0;
        for (std::int64_t j = 0; j < Clustered::width; ++j) {
            for (std::int64_t i = 0; i < Clustered::samples; ++i) mean[at(j)] += c.h.row(i)[j] / samples;
            for (std::int64_t r = 0; r < Clustered::rows; ++r) mean_row[at(j)] += c.weight.row(r)[j] / rows;
            for (std::int64_t i = 0; i < Clustered::samples; ++i)
                h_square += std::pow(c.h.row(i)[j] - mean[at(j)], 2) / samples;
            for (std::int64_t r = 0; r < Clustered::rows; ++r)
                w_square += std::pow(c.weight.row(r)[j] - mean_row[at(j)], 2) / rows;
        }
        for (std::int64_t r = 0; r < Clustered::rows; ++r) {
            double logit = c.bias[at(r)];
            for (std::int64_t j = 0; j < Clustered::width; ++j) logit += mean[at(j)] * c.weight.row(r)[j];
            last.push_back(logit);
            c_mean += logit / rows;
        }
        for (double &x : last) {
            x -= c_mean;
            c_square += x * x / rows;
        }
        scale = std::sqrt(std::sqrt(h_square) * std::sqrt(c_square) / std::sqrt(w_square));
    }
    /// The inner product of sample i's query and row r.
    double product(const Clustered &c, std::int64_t i, std::int64_t r) const {
        double sum = scale * (last[at(r)] / scale);
        for (std::int64_t j = 0; j < Clustered::width; ++j)
            sum += (c.h.row(i)[j] - mean[at(j)]) * (c.weight.row(r)[j] - mean_row[at(j)]);
        return sum;
    }
    static double logit(const Clustered &c, std::int64_t i, std::int64_t r) {
        double sum = c.bias[at(r)];
        for (std::int64_t j = 0; j < Clustered::width; ++j)
            sum += static_cast<double>(c.h.row(i)[j]) * c.weight.row(r)[j];
        return sum;
    }
};

} // namespace

static void test_lsh__centring_keeps_the_order_of_the_logits(void **) {
    const Clustered c(2);
    const Centred centred(c);
    double worst = 0;
    for (const std::int64_t i : {0, 9}) {
        const double offset = centred.product(c, i, 0) - Centred::logit(c, i, 0);
        for (std::int64_t r = 1; r < 200; ++r)
            worst = std::max(worst, std::abs(centred.product(c, i, r) - Centred::logit(c, i, r) - offset));
    }
    assert_true(worst < 1e-9); // the same offset for every row
}

static void test_lsh__centred_rows_are_what_the_tables_hold(void **) {
    const Clustered c(2);
    const Centred expected(c);
    Arena arena(2);
    TableSource source = source_of(DSLIDE_HASH_SIMHASH, true);
    prepare(source, arena, c, 0);
    double worst_mean = 0;
    for (std::int64_t j = 0; j < Clustered::width; ++j)
        worst_mean = std::max(worst_mean, std::abs(source.frozen_mean()[at(j)] - expected.mean[at(j)]));
    Matrix rows(Clustered::rows, Clustered::width);
    std::vector<float> last(Clustered::rows);
    for (std::int64_t r = 0; r < Clustered::rows; ++r) {
        for (std::int64_t j = 0; j < Clustered::width; ++j)
            rows.row(r)[j] = static_cast<float>(c.weight.row(r)[j] - expected.mean_row[at(j)]);
        last[at(r)] = static_cast<float>(expected.last[at(r)] / expected.scale);
    }
    // Codes of the rows made here; rounding may turn a bit of a projection close to 0.
    const auto codes = codes_of(source.tables().family(), rows_of(rows, last.data()));
    std::vector<std::int32_t> held(at(Clustered::rows * 50));
    source.tables().write_codes(held.data());
    std::int64_t different = 0;
    for (std::int64_t r = 0; r < Clustered::rows; ++r)
        for (std::int64_t t = 0; t < 50; ++t)
            different += held[at(r * 50 + t)] != static_cast<std::int32_t>(codes[at(t * Clustered::rows + r)]);
    assert_true(worst_mean < 1e-5);
    assert_true(std::abs(source.state().scale / expected.scale - 1) < 1e-4);
    assert_true(different < 100); // of 150,000
}

static void test_lsh__the_head_is_found_by_every_sample(void **) {
    const Clustered c(2);
    const Centred centred(c);
    std::vector<std::int32_t> by_mean_logit(Clustered::rows);
    std::iota(by_mean_logit.begin(), by_mean_logit.end(), 0);
    std::sort(by_mean_logit.begin(), by_mean_logit.end(),
              [&](std::int32_t a, std::int32_t b) { return centred.last[at(a)] > centred.last[at(b)]; });
    Arena arena(2);
    std::string failing;
    for (const std::int64_t want : {5, 40, 200, 3000}) {
        TableSource source = source_of(DSLIDE_HASH_SIMHASH, true, 6, 40);
        prepare(source, arena, c, 0);
        Candidates found;
        source.find(arena, c.h, 0, want, found);
        for (std::int64_t i = 0; i < Clustered::samples; ++i) {
            const std::int32_t *rows = found.row.data() + i * found.stride;
            const std::set<std::int32_t> distinct(rows, rows + found.count[at(i)]);
            if (static_cast<std::int64_t>(distinct.size()) != found.count[at(i)] || found.count[at(i)] > want)
                failing += "twice ";
            for (std::int64_t place = 0; place < std::min<std::int64_t>(want, 40); ++place)
                if (!distinct.count(by_mean_logit[at(place)])) failing += "missing ";
        }
    }
    TableSource small = source_of(DSLIDE_HASH_SIMHASH, true, 6, 1000000); // more than there are rows
    prepare(small, arena, c, 0);
    if (small.head_classes().size() != std::size_t{Clustered::rows}) failing += "all ";
    assert_string_equal(failing.substr(0, 100).c_str(), "");
}

static void test_lsh__running_mean_remembers_ten_batches(void **) {
    Clustered c(0);
    Arena arena(1);
    TableSource source = source_of(DSLIDE_HASH_SIMHASH, true), uncentred = source_of(DSLIDE_HASH_SIMHASH, false);
    const auto fill = [&](float value) { std::fill(c.h.data.begin(), c.h.data.end(), value); };
    fill(1);
    prepare(source, arena, c, 0);
    prepare(uncentred, arena, c, 0);
    const float first = source.running_mean()[5];
    fill(2);
    prepare(source, arena, c, 1);
    const float second = source.running_mean()[5], frozen = source.frozen_mean()[5];
    fill(3e30f); // a batch on the way to infinity leaves no trace
    prepare(source, arena, c, 2);
    const float third = source.running_mean()[5];
    fill(1);
    prepare(source, arena, c, 3); // due
    assert_true(first == 1);
    assert_true(std::abs(second - 1.1f) < 1e-6f); // 0.9 x 1 + 0.1 x 2
    assert_true(frozen == 1);
    assert_true(third == second);
    assert_true(std::abs(source.frozen_mean()[5] - 1.09f) < 1e-6f);
    assert_true(uncentred.frozen_mean()[5] == 0 && uncentred.state().scale == 1);
}

static void test_lsh__rebuilds_follow_the_schedule(void **) {
    const Clustered c(0);
    Arena arena(2);
    TableSource source = source_of(DSLIDE_HASH_SIMHASH, true, 3);
    std::vector<std::int64_t> steps;
    for (std::int64_t step = 0; step < 45; ++step)
        if (prepare(source, arena, c, step, step == 12)) steps.push_back(step);
    // First gap 3, doubled to 6, at most 10; the forced one at 12 does not move the others.
    const std::vector<std::int64_t> expected{0, 3, 9, 12, 19, 29, 39};
    const bool as_expected = steps == expected;
    assert_true(as_expected);
    assert_int_equal(source.state().rebuilds, 7);
}

static void test_lsh__candidates_do_not_depend_on_threads(void **) {
    const Clustered c(1);
    std::string failing;
    for (const std::int32_t family : {DSLIDE_HASH_SIMHASH, DSLIDE_HASH_DWTA}) {
        std::vector<std::int32_t> first;
        for (const int threads : thread_counts) {
            Arena arena(threads);
            TableSource source = source_of(family, true);
            prepare(source, arena, c, 0);
            Candidates found;
            for (std::int64_t step = 0; step < 3; ++step) source.find(arena, c.h, step, 100, found);
            std::vector<std::int32_t> now;
            for (std::int64_t i = 0; i < Clustered::samples; ++i) {
                now.push_back(found.count[at(i)]);
                for (std::int32_t k = 0; k < found.count[at(i)]; ++k)
                    now.push_back(found.row[at(i * found.stride + k)]);
            }
            if (first.empty()) first = now;
            if (first != now) failing += "threads ";
            source.find(arena, c.h, 3, 5000, found); // more than there are
            if (found.stride != Clustered::rows) failing += "stride ";
        }
    }
    assert_string_equal(failing.c_str(), "");
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_lsh__simhash_bits_agree_with_one_minus_angle_over_pi),
        cmocka_unit_test(test_lsh__simhash_bits_of_sparse_vectors_agree_as_the_angle_says),
        cmocka_unit_test(test_lsh__simhash_bits_of_unit_vectors_agree_half_of_the_time),
        cmocka_unit_test(test_lsh__simhash_counts_the_last_coordinate_like_any_other),
        cmocka_unit_test(test_lsh__codes_use_their_full_range),
        cmocka_unit_test(test_lsh__longest_codes_stay_below_two_to_the_24),
        cmocka_unit_test(test_lsh__groups_of_tables_have_functions_of_their_own),
        cmocka_unit_test(test_lsh__families_do_not_depend_on_threads_or_neighbours),
        cmocka_unit_test(test_lsh__dwta_sees_the_ranking_alone),
        cmocka_unit_test(test_lsh__dwta_of_sparse_vectors_borrows_codes),
        cmocka_unit_test(test_lsh__tables_hold_every_id_once_in_its_bucket),
        cmocka_unit_test(test_lsh__tables_come_back_from_their_codes),
        cmocka_unit_test(test_lsh__queries_find_what_collides_most),
        cmocka_unit_test(test_lsh__queries_draw_a_window_among_ties_only),
        cmocka_unit_test(test_lsh__queries_look_at_a_window_of_long_buckets),
        cmocka_unit_test(test_lsh__shared_rows_come_as_often_as_their_log_inclusion_says),
        cmocka_unit_test(test_lsh__shared_rows_without_counts_are_uniform),
        cmocka_unit_test(test_lsh__selection_joins_its_sources_without_repeats),
        cmocka_unit_test(test_lsh__selection_keeps_labels_when_no_bucket_hits),
        cmocka_unit_test(test_lsh__selection_does_not_depend_on_threads),
        cmocka_unit_test(test_lsh__random_fill_is_uniform_and_knows_its_probability),
        cmocka_unit_test(test_lsh__random_source_gives_distinct_uniform_rows),
        cmocka_unit_test(test_lsh__tables_recall_the_true_top_rows),
        cmocka_unit_test(test_lsh__centring_keeps_the_order_of_the_logits),
        cmocka_unit_test(test_lsh__the_head_is_found_by_every_sample),
        cmocka_unit_test(test_lsh__centred_rows_are_what_the_tables_hold),
        cmocka_unit_test(test_lsh__running_mean_remembers_ten_batches),
        cmocka_unit_test(test_lsh__rebuilds_follow_the_schedule),
        cmocka_unit_test(test_lsh__candidates_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

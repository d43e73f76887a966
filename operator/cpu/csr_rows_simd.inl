// The text of the kernels for vector registers. The file that includes it defines LSMR_TARGET, the attribute that lets a function use
// its instructions, and before that includes what this one needs.
//
// Lanes<T> offers, for kLanes values of T:
//   Mask first(n)                                   the first n lanes, none for n <= 0, all for n >= kLanes
//   Vector zero(), all(T), load(Mask, T*)           lanes outside of a mask are 0, their memory is not touched
//   Vector keep(Mask, Vector), drop(Mask, Vector)   0 in the lanes outside of the mask, in those inside
//   void store(Mask, T*, Vector)
//   Vector add_products(Mask, V*, C*, T* x, Vector s)   s + values x[columns] in the lanes of the mask; others keep s
//   Vector add_padded(V* values, C* columns, T* x, Vector s)   the same in the lanes whose column is not -1
//   void store_all(T*, Vector)
//   Vector add(Vector, Vector), multiply(Vector, Vector), multiply_add(a, b, c)   a b + c
//   Vector sums(const Vector (&)[kLanes])           lane j: the sum over the lanes of vector j
//   Squares                                         fp64 sums of squares of vectors

// The lanes of a row's partial sums. Short rows take the first step only, which has no branch on the length.
template <class Lanes, class T, class V, class C>
LSMR_TARGET inline typename Lanes::Vector row_steps(const V* values, const C* columns, std::int64_t length, const T* x) {
    prefetch_ahead(values);
    prefetch_ahead(columns);
    auto sum = Lanes::add_products(Lanes::first(length), values, columns, x, Lanes::zero());
    for (std::int64_t k = Lanes::kLanes; k < length; k += Lanes::kLanes) {
        prefetch_ahead(values + k);
        prefetch_ahead(columns + k);
        sum = Lanes::add_products(Lanes::first(length - k), values + k, columns + k, x, sum);
    }
    return sum;
}

template <class Lanes, class T, class V, class C>
LSMR_TARGET typename Lanes::Vector row_halves(const V* values, const C* columns, std::int64_t length, const T* x) {
    if (length <= kRowSteps * Lanes::kLanes) return row_steps<Lanes>(values, columns, length, x);
    const std::int64_t middle = half_of_row(length, Lanes::kLanes);
    const auto left = row_halves<Lanes>(values, columns, middle, x);
    return Lanes::add(left, row_halves<Lanes>(values + middle, columns + middle, length - middle, x));
}

template <class Lanes, class T, class V, class C>
LSMR_TARGET inline typename Lanes::Vector row_lanes(const V* values, const C* columns, std::int64_t length, const T* x) {
    if (length > kRowSteps * Lanes::kLanes) return row_halves<Lanes>(values, columns, length, x);
    return row_steps<Lanes>(values, columns, length, x);
}

// The lanes of two neighbouring rows. A gather costs the same however few of its lanes are in use, so rows that fit share one.
template <class Lanes, class T, class V, class C>
LSMR_TARGET inline void two_rows(const V* values, const C* columns, std::int64_t length, std::int64_t next_length, const T* x,
                                 typename Lanes::Vector* rows) {
    if (length + next_length <= Lanes::kLanes) {
        const auto both = row_lanes<Lanes>(values, columns, length + next_length, x);
        rows[0] = Lanes::keep(Lanes::first(length), both);
        rows[1] = Lanes::drop(Lanes::first(length), both);
    } else {
        rows[0] = row_lanes<Lanes>(values, columns, length, x);
        rows[1] = row_lanes<Lanes>(values + length, columns + length, next_length, x);
    }
}

// As many rows at once as there are lanes, so that their sums over lanes are formed together, and y is read and written in vectors.
template <class Lanes, class T, class V, class C>
LSMR_TARGET double rows_simd(const RowBlock<T, V, C>& block, T a, const T* x, T b, T* y) {
    constexpr int kLanes = Lanes::kLanes;
    constexpr int kBlock = 16;  // steps: sums of squares are formed in blocks, and these by halves
    const auto a_lanes = Lanes::all(a);
    const auto b_lanes = Lanes::all(b);
    PairwiseSum total;
    for (std::int64_t first = 0; first < block.rows; first += kBlock * kLanes) {
        typename Lanes::Squares squares;
        const std::int64_t end = std::min(block.rows, first + kBlock * kLanes);
        for (std::int64_t i = first; i < end; i += kLanes) {
            const std::int64_t* offsets = block.offsets + i;
            std::int64_t last_offsets[kLanes + 1];
            if (end - i < kLanes) {  // rows beyond the end are empty
                for (int j = 0; j <= kLanes; ++j) last_offsets[j] = offsets[std::min<std::int64_t>(j, end - i)];
                offsets = last_offsets;
            }
            typename Lanes::Vector rows[kLanes];
#pragma GCC unroll 8
            for (int j = 0; j < kLanes; j += 2) {
                const std::int64_t k = offsets[j] - block.offsets[0];
                two_rows<Lanes>(block.values + k, block.columns + k, offsets[j + 1] - offsets[j], offsets[j + 2] - offsets[j + 1], x, rows + j);
            }
            const auto mask = Lanes::first(end - i);
            auto result = Lanes::multiply(a_lanes, Lanes::sums(rows));
            if (b != T(0)) result = Lanes::multiply_add(b_lanes, Lanes::load(mask, y + i), result);
            Lanes::store(mask, y + i, result);
            squares.add(Lanes::keep(mask, result));  // an infinite coefficient makes NaN of lanes without a row
        }
        total.add(squares.sum());
    }
    return total.value();
}

// A slice of padded rows: all 32 at once, in as many vectors as they need.
template <class Lanes, class T>
LSMR_TARGET void slice_simd(const PaddedSlice<T>& slice, const T* x, T* sums) {
    constexpr int kVectors = static_cast<int>(kSliceRows) / Lanes::kLanes;
    constexpr std::int64_t kAhead = 8;  // columns: 2 KiB of values in fp64
    if (slice.width > kRowSteps) {
        const std::int64_t middle = half_of_row(slice.width, 1);
        alignas(64) T right[kSliceRows];
        slice_simd<Lanes>(slice.columns_from(0, middle), x, sums);
        slice_simd<Lanes>(slice.columns_from(middle, slice.width), x, right);
        for (std::int64_t i = 0; i < kSliceRows; ++i) sums[i] += right[i];
        return;
    }
    typename Lanes::Vector rows[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) rows[j] = Lanes::zero();
    const T* values = slice.values;
    const std::int32_t* columns = slice.columns;
    for (std::int64_t k = 0; k < slice.width; ++k, values += slice.step, columns += slice.step) {
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) {
            __builtin_prefetch(values + j * Lanes::kLanes + kAhead * slice.step);
            rows[j] = Lanes::add_padded(values + j * Lanes::kLanes, columns + j * Lanes::kLanes, x, rows[j]);
        }
        __builtin_prefetch(columns + kAhead * slice.step);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) Lanes::store_all(sums + j * Lanes::kLanes, rows[j]);
}

// Rows in slices; the sums of a window in their order, then its y in vectors.
template <class Lanes, class T, class V, class C>
LSMR_TARGET double sliced_simd(const SlicedBlock<T, V, C>& block, T a, const T* x, T b, T* y) {
    constexpr int kLanes = Lanes::kLanes;
    constexpr int kVectors = static_cast<int>(kSlicedRows) / kLanes;
    constexpr int kBlock = 16;
    const auto a_lanes = Lanes::all(a);
    const auto b_lanes = Lanes::all(b);
    const std::int64_t* offsets = block.offsets;
    const std::uint16_t* order = block.order;
    alignas(64) T sums[kWindowRows + 1];  // the last one: of lanes without a row
    PairwiseSum total;
    for (std::int64_t window = 0; window < block.rows; window += kWindowRows) {
        const std::int64_t rows = std::min(kWindowRows, block.rows - window);
        for (std::int64_t place = 0; place < rows; place += kSlicedRows, ++offsets, order += kSlicedRows) {
            typename Lanes::Vector slice[kVectors];
            for (int j = 0; j < kVectors; ++j) slice[j] = Lanes::zero();
            const std::int64_t end = offsets[1] - block.offsets[0];
            for (std::int64_t k = offsets[0] - block.offsets[0]; k < end;) {  // by pieces: rounding grows with their length and their number
                typename Lanes::Vector piece[kVectors];
                for (int j = 0; j < kVectors; ++j) piece[j] = Lanes::zero();
                for (const std::int64_t piece_end = std::min(end, k + kRowSteps * kSlicedRows); k < piece_end; k += kSlicedRows) {
                    prefetch_ahead(block.values + k);
                    prefetch_ahead(block.columns + k);
                    for (int j = 0; j < kVectors; ++j) {
                        piece[j] = Lanes::add_padded(block.values + k + j * kLanes, block.columns + k + j * kLanes, x, piece[j]);
                    }
                }
                for (int j = 0; j < kVectors; ++j) slice[j] = Lanes::add(slice[j], piece[j]);
            }
            alignas(64) T lanes[kSlicedRows];
            for (int j = 0; j < kVectors; ++j) Lanes::store_all(lanes + j * kLanes, slice[j]);
#pragma GCC unroll 8
            for (int i = 0; i < kSlicedRows; ++i) sums[order[i]] = lanes[i];
        }
        for (std::int64_t first = 0; first < rows; first += kBlock * kLanes) {
            typename Lanes::Squares squares;
            for (std::int64_t i = first; i < std::min(rows, first + kBlock * kLanes); i += kLanes) {
                const auto mask = Lanes::first(rows - i);
                auto result = Lanes::multiply(a_lanes, Lanes::load(mask, sums + i));
                if (b != T(0)) result = Lanes::multiply_add(b_lanes, Lanes::load(mask, y + window + i), result);
                Lanes::store(mask, y + window + i, result);
                squares.add(Lanes::keep(mask, result));
            }
            total.add(squares.sum());
        }
    }
    return total.value();
}

// z of the last run of a group. The next group often has the same one: its sums stay here, and do not wait for what was just stored.
template <class Lanes, class T>
struct HeldRun {
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    std::uint32_t word = kNone;
    typename Lanes::Vector z;
    LSMR_TARGET HeldRun() : z(Lanes::zero()) {}
    LSMR_TARGET void put_back(T* sums) const {
        if (word != kNone) Lanes::store_all(sums + column_of_run(word), z);
    }
    LSMR_TARGET void take(std::uint32_t run, const T* sums) {
        word = run;
        z = Lanes::load_all(sums + column_of_run(run));
    }
};

// A group of kRuns runs, whose values stay in registers between the two products; returns ||y||^2. Vectors of z reach beyond their runs: there they store what
// they loaded. So the held run is put back before other runs are loaded, which all have lower columns than the one that is taken after them.
template <class Lanes, bool kProduct, int kRows, int kRuns, class T, class V, class Y>
[[gnu::always_inline]] LSMR_TARGET inline double short_group(const std::uint32_t* runs, const V* values, std::int64_t length, T a, const T* x, T b, Y* y, T* z,
                                                             HeldRun<Lanes, T>& held) {
    using Vector = typename Lanes::Vector;
    decltype(Lanes::first(0)) masks[kRuns];
    Vector entries[kRuns][kRows];
    Vector sums[kRows];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) sums[r] = Lanes::zero();
#pragma GCC unroll 4
    for (int p = 0; p < kRuns; ++p) {
        masks[p] = Lanes::first(length_of_run(runs[p]));
        const Vector from = kProduct ? Lanes::load(masks[p], x + column_of_run(runs[p])) : Lanes::zero();
#pragma GCC unroll 2
        for (int r = 0; r < kRows; ++r) {
            entries[p][r] = Lanes::load_values(masks[p], values + r * length);
            if (kProduct) sums[r] = Lanes::multiply_add(entries[p][r], from, sums[r]);
        }
        values += length_of_run(runs[p]);
    }
    double squares = 0;
    Vector with[kRows];
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
        if constexpr (kProduct) squares += finish_row(a * Lanes::sum(sums[r]), b, y + r);
        with[r] = Lanes::all(y[r]);
    }
    const bool other = runs[kRuns - 1] != held.word;
    if (other) held.put_back(z);
#pragma GCC unroll 4
    for (int p = 0; p < kRuns; ++p) {
        if (p == kRuns - 1 && other) held.take(runs[p], z);
        Vector to = p == kRuns - 1 ? held.z : Lanes::load_all(z + column_of_run(runs[p]));
#pragma GCC unroll 2
        for (int r = 0; r < kRows; ++r) to = Lanes::add_where(masks[p], entries[p][r], with[r], to);
        if (p == kRuns - 1) held.z = to;
        else Lanes::store_all(z + column_of_run(runs[p]), to);
    }
    return squares;
}

// The same for any number of runs, whose values are read again.
template <class Lanes, bool kProduct, class T, class V, class Y>
LSMR_TARGET double long_group(const Group& group, const std::uint32_t* runs, const V* values, T a, const T* x, T b, Y* y, T* z, HeldRun<Lanes, T>& held) {
    using Vector = typename Lanes::Vector;
    double squares = 0;
    held.put_back(z);
    held.word = HeldRun<Lanes, T>::kNone;
    for (std::int64_t r = 0; r < group.rows; ++r, values += group.length) {
        if constexpr (kProduct) {
            Vector sum = Lanes::zero();
            const V* from = values;
            for (std::int64_t p = 0; p < group.runs;) {  // by pieces: rounding grows with their length and their number
                Vector piece = Lanes::zero();
                for (const std::int64_t end = std::min(group.runs, p + kRowSteps); p < end; ++p) {
                    const auto mask = Lanes::first(length_of_run(runs[p]));
                    piece = Lanes::multiply_add(Lanes::load_values(mask, from), Lanes::load(mask, x + column_of_run(runs[p])), piece);
                    from += length_of_run(runs[p]);
                }
                sum = Lanes::add(sum, piece);
            }
            squares += finish_row(a * Lanes::sum(sum), b, y + r);
        }
        const Vector with = Lanes::all(y[r]);
        const V* from = values;
        for (std::int64_t p = 0; p < group.runs; ++p) {
            const auto mask = Lanes::first(length_of_run(runs[p]));
            T* const to = z + column_of_run(runs[p]);
            Lanes::store_all(to, Lanes::add_where(mask, Lanes::load_values(mask, from), with, Lanes::load_all(to)));
            from += length_of_run(runs[p]);
        }
    }
    return squares;
}

// Product: y <- a A x + b y as well.
template <class Lanes, bool kProduct, class T, class V, class Y>
LSMR_TARGET double groups_simd(const GroupBlock<V>& block, T a, const T* x, T b, Y* y, T* z) {
    HeldRun<Lanes, T> held;
    const std::uint32_t* words = block.words;
    const V* values = block.values;
    double squares = 0;
    for (const Y* const end = y + block.rows; y < end;) {
        const Group group = group_of(*words++);
        const std::int64_t entries = group.rows * group.length;
        prefetch_ahead(words);
        for (std::int64_t k = 0; k < entries; k += 64 / static_cast<std::int64_t>(sizeof(V))) prefetch_ahead(values + k);
        switch (2 * group.runs + group.rows) {
            case 3: squares += short_group<Lanes, kProduct, 1, 1>(words, values, group.length, a, x, b, y, z, held); break;
            case 4: squares += short_group<Lanes, kProduct, 2, 1>(words, values, group.length, a, x, b, y, z, held); break;
            case 5: squares += short_group<Lanes, kProduct, 1, 2>(words, values, group.length, a, x, b, y, z, held); break;
            case 6: squares += short_group<Lanes, kProduct, 2, 2>(words, values, group.length, a, x, b, y, z, held); break;
            case 7: squares += short_group<Lanes, kProduct, 1, 3>(words, values, group.length, a, x, b, y, z, held); break;
            case 8: squares += short_group<Lanes, kProduct, 2, 3>(words, values, group.length, a, x, b, y, z, held); break;
            case 9: squares += short_group<Lanes, kProduct, 1, 4>(words, values, group.length, a, x, b, y, z, held); break;
            case 10: squares += short_group<Lanes, kProduct, 2, 4>(words, values, group.length, a, x, b, y, z, held); break;
            default: squares += long_group<Lanes, kProduct>(group, words, values, a, x, b, y, z, held);
        }
        words += group.runs;
        values += entries;
        y += group.rows;
    }
    held.put_back(z);
    return squares;
}

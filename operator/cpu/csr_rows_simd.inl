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

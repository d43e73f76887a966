// The mail of a persistent kernel: what a block reads, multiplies, adds and sends. Layout and order: solver/cuda/mail.hpp.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "solver/cuda/persistent_block.cuh"

namespace lsmr::cuda {

// What a thread reads or writes at once: 16 bytes of a mailbox, each value beside its own last bit.
template <class T>
struct Letter {
    using Bits = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
    static constexpr int kValues = 16 / sizeof(T);
    Bits bits[kValues];

    static __device__ Bits bits_of(double value) { return static_cast<Bits>(__double_as_longlong(value)); }
    static __device__ Bits bits_of(float value) { return __float_as_uint(value); }
    __device__ T value(int i) const {
        if constexpr (sizeof(T) == 8) return __longlong_as_double(static_cast<long long>(bits[i]));
        else return __uint_as_float(bits[i]);
    }
    // Whether all are those on the way back, or all those on the way there.
    template <bool kBack>
    __device__ bool come() const {
        Bits both = bits[0];
#pragma unroll
        for (int i = 1; i < kValues; ++i) both = kBack ? both & bits[i] : both | bits[i];
        return (both & 1) == (kBack ? 1 : 0);
    }
    // Relaxed: each value carries all that it needs.
    static __device__ Letter read(const T* from) {
        Letter it;
        if constexpr (sizeof(T) == 8) {
            asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(it.bits[0]), "=l"(it.bits[1]) : "l"(from) : "memory");
        } else {
            asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(it.bits[0]), "=r"(it.bits[1]), "=r"(it.bits[2]), "=r"(it.bits[3])
                         : "l"(from)
                         : "memory");
        }
        return it;
    }
    __device__ void write(T* to) const {
        if constexpr (sizeof(T) == 8) {
            asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(bits[0]), "l"(bits[1]) : "memory");
        } else {
            asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3])
                         : "memory");
        }
    }
};

// 16-bit places of a letter's values.
template <class T>
struct LetterPlaces {
    std::conditional_t<sizeof(T) == 8, unsigned, uint2> packed;

    static __device__ LetterPlaces of(const std::uint16_t* list, int letter) {
        return {__ldg(reinterpret_cast<const decltype(packed)*>(list) + letter)};
    }
    __device__ int operator[](int i) const {
        unsigned two;
        if constexpr (sizeof(T) == 8) two = packed;
        else two = i < 2 ? packed.x : packed.y;
        return static_cast<int>(i % 2 == 0 ? two & 0xffffu : two >> 16);
    }
};

// v-hat as it is mailed: without its last bit.
template <class T>
__device__ inline T mailable(T value) {
    if constexpr (sizeof(T) == 8) return __longlong_as_double(__double_as_longlong(value) & ~1ll);
    else return __uint_as_float(__float_as_uint(value) & ~1u);
}

// A block's part of one orientation.
struct MailRows {
    const PersistentMailSide& side;
    int first_row;
    int rows;
    int diagonals;
    int first_slot;
    int letters;  // of the list
    int team_level;  // 2^this threads add a row

    __device__ MailRows(const PersistentMailSide& of, int slots_of_letter)
        : side(of),
          first_row(of.block_rows[blockIdx.x]),
          rows(of.block_rows[blockIdx.x + 1] - first_row),
          diagonals(of.diagonals_at[blockIdx.x + 1] - of.diagonals_at[blockIdx.x]),
          first_slot(of.begin[blockIdx.x]),
          letters((of.begin[blockIdx.x + 1] - first_slot) / slots_of_letter),
          team_level(0) {
        while (team_level < 3 && rows << (team_level + 1) <= kProductThreads && kMailDiagonals << team_level < diagonals) ++team_level;
    }
    __device__ MailDiagonal* in_shared(unsigned char* shared) const { return reinterpret_cast<MailDiagonal*>(shared + side.diagonals_in_shared); }
    // Where the block's row i lies in a vector.
    __device__ int index(int i) const { return side.order[first_row + i]; }
    __device__ void load(unsigned char* shared, int thread) const {
        for (int d = thread; d < diagonals; d += kPersistentThreads) in_shared(shared)[d] = side.diagonals[side.diagonals_at[blockIdx.x] + d];
    }
};

// By the product threads, but for load(); `thread` of them 0 .. kProductThreads - 1.
template <class T>
struct MailPart {
    using Word = std::conditional_t<sizeof(T) == 8, double2, float4>;
    static constexpr int kValues = Letter<T>::kValues;

    const PersistentMail<T>& mail;
    unsigned char* shared;
    MailRows forward;
    MailRows adjoint;

    __device__ MailPart(const PersistentMail<T>& of, unsigned char* shared_)
        : mail(of), shared(shared_), forward(of.forward, kValues), adjoint(of.adjoint, kValues) {}
    __device__ T* products() const { return reinterpret_cast<T*>(shared + mail.products_at); }
    __device__ T* mailbox() const { return mail.slots + forward.first_slot; }
    __device__ int resident_letters() const { return min(mail.resident / kValues, forward.letters); }
    __device__ const Word* values() const { return reinterpret_cast<const Word*>(mail.values + forward.first_slot); }
    __device__ Word value(int letter) const {
        return letter < resident_letters() ? reinterpret_cast<const Word*>(shared + mail.values_at)[letter] : __ldg(values() + letter);
    }
    static __device__ T part(const Word& word, int i) {
        if constexpr (sizeof(T) == 8) return i == 0 ? word.x : word.y;
        else return i == 0 ? word.x : i == 1 ? word.y : i == 2 ? word.z : word.w;
    }
    // Of a letter of the columns' list: which letter of all mailboxes it is.
    __device__ std::uint32_t place_of_column(int letter) const {
        return __ldg(mail.sectors + adjoint.first_slot / (2 * kValues) + letter / 2) * 2 + static_cast<std::uint32_t>(letter & 1);
    }
    __device__ T* slot(std::uint32_t letter) const { return mail.slots + static_cast<std::int64_t>(letter) * kValues; }

    // By all threads of the block.
    __device__ void load(int thread) const {
        forward.load(shared, thread);
        adjoint.load(shared, thread);
#pragma unroll 4
        for (int l = thread; l < resident_letters(); l += kPersistentThreads) reinterpret_cast<Word*>(shared + mail.values_at)[l] = __ldg(values() + l);
    }

    // v-hat of the block's columns, which is mailable, to all rows.
    __device__ void send_columns(const T* v, int thread) const {
        const std::uint16_t* columns = mail.adjoint.rows + adjoint.first_slot;
        const auto send = [&](const LetterPlaces<T>& places, std::uint32_t to) {
            Letter<T> letter;
#pragma unroll
            for (int i = 0; i < kValues; ++i) letter.bits[i] = Letter<T>::bits_of(v[places[i]]);
            letter.write(slot(to));
        };
        if (adjoint.letters > kShortList) {
#pragma unroll 4
            for (int l = thread; l < adjoint.letters; l += kProductThreads) send(LetterPlaces<T>::of(columns, l), place_of_column(l));
            return;
        }
        LetterPlaces<T> places[2];
        std::uint32_t to[2];
        for_each_letter<2>(thread, adjoint.letters, [&](int k, int l) {
            places[k] = LetterPlaces<T>::of(columns, l);
            to[k] = place_of_column(l);
        });
        for_each_letter<2>(thread, adjoint.letters, [&](int k, int) { send(places[k], to[k]); });
    }
    // products <- a_ij v_j of the block's rows, as they come.
    __device__ void receive_columns(int thread) const {
        in_batches(forward.letters, [&](auto batch) {
            constexpr int kLetters = decltype(batch)::value;
            T* const to = products();
            const std::uint16_t* places_list = mail.forward.products + forward.first_slot;
            for (int first = thread; first < forward.letters; first += kLetters * kProductThreads) {
                LetterPlaces<T> places[kLetters];
                Word word[kLetters];
                Letter<T> letter[kLetters];
                for_each_letter<kLetters>(first, forward.letters, [&](int k, int l) {
                    places[k] = LetterPlaces<T>::of(places_list, l);
                    word[k] = value(l);
                });
                read_all<false>(first, forward.letters, letter, [&](int, int l) { return mailbox() + l * kValues; });
                for_each_letter<kLetters>(first, forward.letters, [&](int k, int) {
#pragma unroll
                    for (int i = 0; i < kValues; ++i) to[places[k][i]] = part(word[k], i) * letter[k].value(i);
                });
            }
        });
        __syncwarp();
    }
    // a_ij u_i of the block's rows back to the columns.
    __device__ void send_rows(const T* u, int thread) const {
        const std::uint16_t* rows = mail.forward.rows + forward.first_slot;
        const auto send = [&](const LetterPlaces<T>& places, const Word& word, int l) {
            Letter<T> letter;
#pragma unroll
            for (int i = 0; i < kValues; ++i) letter.bits[i] = Letter<T>::bits_of(part(word, i) * u[places[i]]) | 1;
            letter.write(mailbox() + l * kValues);
        };
        if (forward.letters > kShortList) {
#pragma unroll 4
            for (int l = thread; l < forward.letters; l += kProductThreads) send(LetterPlaces<T>::of(rows, l), value(l), l);
            return;
        }
        LetterPlaces<T> places[2];
        Word word[2];
        for_each_letter<2>(thread, forward.letters, [&](int k, int l) {
            places[k] = LetterPlaces<T>::of(rows, l);
            word[k] = value(l);
        });
        for_each_letter<2>(thread, forward.letters, [&](int k, int l) { send(places[k], word[k], l); });
    }
    // products <- a_ij u_i of the block's columns, as they come.
    __device__ void receive_rows(int thread) const {
        in_batches(adjoint.letters, [&](auto batch) {
            constexpr int kLetters = decltype(batch)::value;
            T* const to = products();
            const std::uint16_t* places_list = mail.adjoint.products + adjoint.first_slot;
            for (int first = thread; first < adjoint.letters; first += kLetters * kProductThreads) {
                LetterPlaces<T> places[kLetters];
                std::uint32_t from[kLetters];
                Letter<T> letter[kLetters];
                for_each_letter<kLetters>(first, adjoint.letters, [&](int k, int l) {
                    places[k] = LetterPlaces<T>::of(places_list, l);
                    from[k] = place_of_column(l);
                });
                read_all<true>(first, adjoint.letters, letter, [&](int k, int) { return slot(from[k]); });
                for_each_letter<kLetters>(first, adjoint.letters, [&](int k, int) {
#pragma unroll
                    for (int i = 0; i < kValues; ++i) to[places[k][i]] = letter[k].value(i);
                });
            }
        });
        __syncwarp();
    }
    // Once all products of a side are there: products[i] <- the sum of row i. Where rows are few, each has a team of threads in one warp, who add
    // kMailDiagonals of its products at a time in turn.
    __device__ void add(const MailRows& side, int thread) const {
        const int level = side.team_level;
        const int lane = thread % 32;
        const int rows_of_warp = 32 >> level;
        const int row = thread / 32 * rows_of_warp + (lane & (rows_of_warp - 1));
        const int turn = lane >> (5 - level);
        T* const of = products();
        const MailDiagonal* const diagonals = side.in_shared(shared);
        for (int first = 0; first < side.rows; first += kProductThreads >> level) {
            const int i = first + row;
            T sum = 0;
            for (int d = turn * kMailDiagonals; d < side.diagonals; d += kMailDiagonals << level) {
                const int4* const from = reinterpret_cast<const int4*>(diagonals + d);
                int4 two[kMailDiagonals / 2];
#pragma unroll
                for (int k = 0; k < kMailDiagonals / 2; ++k) two[k] = from[k];
                if (i >= two[0].y) break;
                T parts[kMailDiagonals];
#pragma unroll
                for (int k = 0; k < kMailDiagonals / 2; ++k) {
                    parts[2 * k] = i < two[k].y ? of[two[k].x + i] : T(0);
                    parts[2 * k + 1] = i < two[k].w ? of[two[k].z + i] : T(0);
                }
                sum += ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
            }
            __syncwarp();
            for (int lanes = 16; lanes >= rows_of_warp; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
            if (i < side.rows && turn == 0) of[i] = sum;
        }
        __syncwarp();
    }
    // All bits of the block's mailbox to what they are between launches, where v-hat came but nothing goes back.
    __device__ void clear(int thread) const {
        Letter<T> letter;
#pragma unroll
        for (int i = 0; i < kValues; ++i) letter.bits[i] = 1;
        for (int l = thread; l < forward.letters; l += kProductThreads) letter.write(mailbox() + l * kValues);
    }

    // f(k, l) for letters l = first + k kProductThreads, those of them that exist.
    template <int kLetters, class F>
    static __device__ void for_each_letter(int first, int letters, const F& f) {
#pragma unroll
        for (int k = 0; k < kLetters; ++k) {
            const int l = first + k * kProductThreads;
            if (l < letters) f(k, l);
        }
    }
    template <bool kBack, int kLetters, class From>
    static __device__ void read_all(int first, int letters, Letter<T> (&letter)[kLetters], const From& from) {
        // They come some time after this block's own have left; reads that find nothing keep them from coming.
        if constexpr (kLetters == kFewLetters) pause(kLettersCross);
        for_each_letter<kLetters>(first, letters, [&](int k, int l) { letter[k] = Letter<T>::read(from(k, l)); });
        bool missing;
        do {
            missing = false;
            for_each_letter<kLetters>(first, letters, [&](int k, int l) {
                if (letter[k].template come<kBack>()) return;
                missing = true;
                letter[k] = Letter<T>::read(from(k, l));
            });
        } while (missing);
    }

  private:
    static constexpr int kShortList = kFewLetters * kProductThreads;
    static constexpr int kLettersCross = 400;  // cycles
    // f with so many letters of a thread under way.
    template <class F>
    static __device__ void in_batches(int letters, const F& f) {
        if (letters <= kShortList) f(std::integral_constant<int, kFewLetters>());
        else f(std::integral_constant<int, 4>());
    }
};

}  // namespace lsmr::cuda

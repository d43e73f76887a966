// The mail of a block that has few letters and few rows: each product thread has the same letters in every pass, and one row of A and one of A^T
// at most, so that it keeps in registers where their values belong, and which products it adds.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "solver/cuda/persistent_mail.cuh"

namespace lsmr::cuda {

// The row of a product thread: a team of 2^team_level threads of a warp has one, of whom each adds every 2^team_level-th product. Threads with the
// same turn and neighbouring rows are neighbours, so that they read neighbours.
template <class T>
class TeamRow {
  public:
    // zero: a place beyond all products, which holds 0. By whole warps.
    __device__ TeamRow(const MailRows& side, const MailDiagonal* diagonals, int zero, int thread)
        : level_(side.team_level),
          row_((thread / 32 << (5 - level_)) + (thread & ((32 >> level_) - 1))),
          turn_(thread % 32 >> (5 - level_)),
          rows_(side.rows),
          diagonals_(diagonals),
          count_(side.diagonals) {
#pragma unroll
        for (int n = 0; n < kKept; n += 2) places_[n / 2] = place(n, zero) | place(n + 1, zero) << 16;
        unsigned left = 0;
        for (int n = 0; has(n); ++n) left = static_cast<unsigned>(n + 1);
        most_ = static_cast<int>(__reduce_max_sync(0xffffffffu, left));
    }
    // The row whose values of vectors are this thread's; negative: none.
    __device__ int own() const { return turn_ == 0 && row_ < rows_ ? row_ : -1; }
    // The sum of the row's products, for all of its team. By whole warps.
    __device__ T sum(const T* products) const {
        T parts[kBatch];
        const auto kept = [&](int first) {
#pragma unroll
            for (int k = 0; k < kBatch; k += 2) {
                const unsigned two = places_[(first + k) / 2];
                parts[k] = products[two & 0xffffu];
                parts[k + 1] = products[two >> 16];
            }
            return sum_of(parts);
        };
        T sum = kept(0);
        if (most_ > kBatch) sum += kept(kBatch);
#pragma unroll 1
        for (int first = kKept; first < most_; first += kBatch) {
#pragma unroll
            for (int k = 0; k < kBatch; ++k) parts[k] = has(first + k) ? products[at(first + k)] : T(0);
            sum += sum_of(parts);
        }
        for (int lanes = 16; lanes >= 32 >> level_; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
        return sum;
    }

  private:
    static constexpr int kBatch = 8;
    static constexpr int kKept = 2 * kBatch;

    __device__ bool has(int n) const {
        const int d = turn_ + (n << level_);
        return d < count_ && row_ < diagonals_[d].size;
    }
    __device__ int at(int n) const { return diagonals_[turn_ + (n << level_)].begin + row_; }
    __device__ unsigned place(int n, int zero) const { return static_cast<unsigned>(has(n) ? at(n) : zero); }
    static __device__ T sum_of(const T (&parts)[kBatch]) {
        return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
    }

    int level_, row_, turn_, rows_;
    const MailDiagonal* diagonals_;
    int count_;
    int most_;  // products of a thread of the warp
    unsigned places_[kKept / 2];  // 16 bits each
};

// What a product thread has of the mail.
template <class T>
class FewMail {
  public:
    const TeamRow<T> row;     // of A
    const TeamRow<T> column;  // of A^T

    __device__ FewMail(const MailPart<T>& mail, int thread)
        : row(mail.forward, mail.forward.in_shared(mail.shared), mail.mail.zero, thread),
          column(mail.adjoint, mail.adjoint.in_shared(mail.shared), mail.mail.zero, thread),
          mail_(mail),
          thread_(thread) {
        const std::uint16_t* const columns = mail.mail.adjoint.rows + mail.adjoint.first_slot;
        const std::uint16_t* const of_columns = mail.mail.adjoint.products + mail.adjoint.first_slot;
        for_each(mail.adjoint, [&](int k, int l) {
            columns_[k] = LetterPlaces<T>::of(columns, l);
            of_columns_[k] = LetterPlaces<T>::of(of_columns, l);
            column_slots_[k] = mail.slot(mail.place_of_column(l));
        });
        const std::uint16_t* const rows = mail.mail.forward.rows + mail.forward.first_slot;
        const std::uint16_t* const of_rows = mail.mail.forward.products + mail.forward.first_slot;
        for_each(mail.forward, [&](int k, int l) {
            rows_[k] = LetterPlaces<T>::of(rows, l);
            of_rows_[k] = LetterPlaces<T>::of(of_rows, l);
            values_[k] = mail.value(l);
        });
    }
    // As those of MailPart.
    __device__ void send_columns(const T* v) const {
        for_each(mail_.adjoint, [&](int k, int) {
            Letter<T> letter;
#pragma unroll
            for (int i = 0; i < kValues; ++i) letter.bits[i] = Letter<T>::bits_of(v[columns_[k][i]]);
            letter.write(column_slots_[k]);
        });
    }
    __device__ void receive_columns() const {
        Letter<T> letters[kFewLetters];
        T* const to = mail_.products();
        read<false>(mail_.forward, letters, [&](int, int l) { return row_slot(l); });
        for_each(mail_.forward, [&](int k, int) {
#pragma unroll
            for (int i = 0; i < kValues; ++i) to[of_rows_[k][i]] = MailPart<T>::part(values_[k], i) * letters[k].value(i);
        });
    }
    __device__ void send_rows(const T* u) const {
        for_each(mail_.forward, [&](int k, int l) {
            Letter<T> letter;
#pragma unroll
            for (int i = 0; i < kValues; ++i) letter.bits[i] = Letter<T>::bits_of(MailPart<T>::part(values_[k], i) * u[rows_[k][i]]) | 1;
            letter.write(row_slot(l));
        });
    }
    __device__ void receive_rows() const {
        Letter<T> letters[kFewLetters];
        T* const to = mail_.products();
        read<true>(mail_.adjoint, letters, [&](int k, int) { return column_slots_[k]; });
        for_each(mail_.adjoint, [&](int k, int) {
#pragma unroll
            for (int i = 0; i < kValues; ++i) to[of_columns_[k][i]] = letters[k].value(i);
        });
    }

  private:
    static constexpr int kValues = Letter<T>::kValues;

    __device__ T* row_slot(int l) const { return mail_.mailbox() + l * kValues; }
    template <class F>
    __device__ void for_each(const MailRows& side, const F& f) const {
        MailPart<T>::template for_each_letter<kFewLetters>(thread_, side.letters, f);
    }
    template <bool kBack, class From>
    __device__ void read(const MailRows& side, Letter<T> (&letters)[kFewLetters], const From& from) const {
        MailPart<T>::template read_all<kBack>(thread_, side.letters, letters, from);
    }

    const MailPart<T>& mail_;
    int thread_;
    LetterPlaces<T> columns_[kFewLetters], of_columns_[kFewLetters], rows_[kFewLetters], of_rows_[kFewLetters];
    T* column_slots_[kFewLetters];
    typename MailPart<T>::Word values_[kFewLetters];
};

}  // namespace lsmr::cuda

// Sizes and tensors.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "opbridge/abi.h"
#include "opbridge/error.h"

namespace opbridge {

// Sizes that own their memory: they can be changed, appended to, and passed to set_output or allocate_output.
class Sizes {
 public:
  Sizes() = default;
  Sizes(std::initializer_list<int64_t> sizes) {
    for (int64_t size : sizes) push_back(size);
  }
  Sizes(SizeSpan sizes) {
    for (int64_t size : sizes) push_back(size);
  }
  Sizes(const Sizes& other) : Sizes(SizeSpan(other.data_, other.rank_)) {}
  Sizes& operator=(const Sizes& other) {
    for (int axis = 0; axis < other.rank_; ++axis) data_[axis] = other.data_[axis];
    rank_ = other.rank_;
    return *this;
  }

  operator SizeSpan() const { return SizeSpan(data_, rank_); }
  int rank() const { return rank_; }
  int64_t size() const { return rank_; }
  int64_t& operator[](int axis) { return data_[axis]; }
  int64_t operator[](int axis) const { return data_[axis]; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + rank_; }
  void push_back(int64_t size) {
    if (rank_ == OPBRIDGE_MAX_RANK)
      throw Error("a tensor has at most ", OPBRIDGE_MAX_RANK, " dimensions");
    data_[rank_++] = size;
  }

 private:
  int64_t data_[OPBRIDGE_MAX_RANK];
  int rank_ = 0;
};

// The number of elements; 1 for rank 0.
inline int64_t element_count(SizeSpan sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

// An axis counted from the front: -1 is the last. Throws if a tensor of this rank has no such axis.
inline int normalized_axis(int64_t axis, int64_t rank) {
  const int64_t counted = axis < 0 ? axis + rank : axis;
  if (counted < 0 || counted >= rank)
    throw Error("axis ", axis, " is out of range for rank ", rank);
  return static_cast<int>(counted);
}

// A contiguous tensor. Indices are not checked.
template <class T>
class Tensor {
 public:
  Tensor(T* data, SizeSpan sizes) : data_(data), sizes_(sizes), count_(element_count(sizes)) {}

  T* data() const { return data_; }
  SizeSpan sizes() const { return sizes_; }
  int rank() const { return static_cast<int>(sizes_.size()); }
  // The size of an axis; a negative axis counts from the back.
  int64_t size(int axis) const { return sizes_[normalized_axis(axis, sizes_.size())]; }
  // The number of elements.
  int64_t count() const { return count_; }
  // The element at a position in memory order.
  T& operator[](int64_t position) const { return data_[position]; }
  // The element at one index per axis.
  template <class... Index>
  T& operator()(Index... index) const {
    const int64_t indices[] = {static_cast<int64_t>(index)..., 0};
    int64_t position = 0;
    for (size_t axis = 0; axis < sizeof...(Index); ++axis) position = position * sizes_[axis] + indices[axis];
    return data_[position];
  }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }

 private:
  T* data_;
  SizeSpan sizes_;
  int64_t count_;
};

// A tensor with a stride per axis, in elements. Indices are not checked.
template <class T>
class StridedTensor {
 public:
  // strides may be NULL for a contiguous tensor.
  StridedTensor(T* data, SizeSpan sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), count_(element_count(sizes)) {
    int64_t contiguous = 1;
    for (int axis = rank() - 1; axis >= 0; --axis) {
      strides_[axis] = strides ? strides[axis] : contiguous;
      contiguous *= sizes[axis];
    }
  }

  T* data() const { return data_; }
  SizeSpan sizes() const { return sizes_; }
  int rank() const { return static_cast<int>(sizes_.size()); }
  int64_t size(int axis) const { return sizes_[normalized_axis(axis, sizes_.size())]; }
  int64_t stride(int axis) const { return strides_[normalized_axis(axis, sizes_.size())]; }
  int64_t count() const { return count_; }
  template <class... Index>
  T& operator()(Index... index) const {
    const int64_t indices[] = {static_cast<int64_t>(index)..., 0};
    int64_t offset = 0;
    for (size_t axis = 0; axis < sizeof...(Index); ++axis) offset += indices[axis] * strides_[axis];
    return data_[offset];
  }

 private:
  T* data_;
  SizeSpan sizes_;
  int64_t count_;
  int64_t strides_[OPBRIDGE_MAX_RANK];
};

// The broadcast sizes of two shapes, by NumPy's rule. Throws if they don't match.
inline Sizes broadcast(SizeSpan a, SizeSpan b) {
  Sizes result(a.size() >= b.size() ? a : b);
  const SizeSpan shorter = a.size() >= b.size() ? b : a;
  const int64_t offset = result.rank() - shorter.size();
  for (int64_t axis = 0; axis < shorter.size(); ++axis) {
    int64_t& size = result[static_cast<int>(axis + offset)];
    if (size == 1) size = shorter[axis];
    else if (shorter[axis] != 1 && shorter[axis] != size)
      throw Error("sizes ", a, " and ", b, " can't be broadcast");
  }
  return result;
}

}  // namespace opbridge

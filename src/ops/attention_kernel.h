// The computation of one head of attention.
//
//   for a block of rows:   S = Q K^T / sqrt(size)    P = softmax(S)    out = P V
//   with a cap:            S = c tanh(S / c) before P, and in I dS *= 1 - (S / c)^2
//   I:                     dV += P^T dout    dP = dout V^T    dS = P (dP - rowsum(P dP))
//                          dQ = dS K / sqrt(size)    dK += dS^T Q / sqrt(size)
//
// Dropout of probabilities, if attrs.factor is above 0 and the step trains: P is masked where it
// meets V, and so is dP; the masks are made again where they are needed.
//
// No [t, u] matrix outlives a block of rows: forward keeps two numbers per row and head, the
// maximum of S and 1 / the sum of exp(S - maximum), of which I makes the same P again. A block's
// scores are computed in tiles of 64 columns; what a causal mask hides is left out in groups of 16
// rows, and tiles before and after all that a block sees. Positions 0 to t - 1 give the bits of the
// op without positions, as does a window of t or more; and so does each sequence of a packed sample
// that begins at a multiple of 64, if blocks have kBlockRows rows and there is no dropout. In other
// sequences the order of some sums differs. Under the same two conditions masked keys behind the
// others affect no bit, whatever they contain. Under a causal mask, what a row does not see affects
// no bit of it, even if it is not finite. Heads of keys of all samples are dealt to at most
// kMostParts groups; their heads of queries, and the blocks of these, run one after another.
#pragma once

#include "ops/attention_heads.h"

namespace weft::attention {

// Forward, and I. `scratch`: Sizes::group_floats(), in which the first of the heads that share keys
// and values leaves these for the others.
void attend(const Call& call, const Sizes& sizes, const Head& head, float* scratch);
void attention_grads(const Call& call, const Sizes& sizes, const Head& head, float* scratch);

}  // namespace weft::attention

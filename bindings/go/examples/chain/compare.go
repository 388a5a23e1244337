package chain

import (
	"fmt"
	"math"
)

func word(good bool) string {
	if good {
		return "ok"
	}
	return "WRONG"
}

// Check prints a number beside the expected one, and reports whether it is within the tolerance.
func Check(what string, found, expected, tolerance float64) bool {
	good := math.Abs(found-expected) <= tolerance // false for NaN
	fmt.Printf("%-26s %12.4f   expected %.4f +- %.4f   %s\n", what, found, expected, tolerance, word(good))
	return good
}

func compare(what string, found []float32, expected []float64) bool {
	largest := 0.0
	for i := range found {
		off := math.Abs(float64(found[i]) - expected[i])
		if off > largest || math.IsNaN(off) {
			largest = off
		}
	}
	good := largest <= 5e-4
	fmt.Printf("%-26s %12.3e   expected at most 5e-4   %s\n", what, largest, word(good))
	return good
}

// Compare prints the differences between both computations, and reports whether they are small.
func (r *Result) Compare(e *Exact) bool {
	fmt.Println("largest differences to the same computation in double:")
	good := compare("  input gradients", r.Input, e.Input)
	good = compare("  weight gradients", join(r.Weight), join(e.Weight)) && good
	return compare("  bias gradients", join(r.Bias), join(e.Bias)) && good
}

func join[T any](parts [Layers][]T) []T {
	var out []T
	for _, part := range parts {
		out = append(out, part...)
	}
	return out
}

// WeightRange returns the smallest and the largest gradient of a weight.
func (r *Result) WeightRange() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, g := range join(r.Weight) {
		low, high = math.Min(low, float64(g)), math.Max(high, float64(g))
	}
	return low, high
}

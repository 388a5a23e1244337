package chain

import "math"

// Random is the legacy generator of NumPy, the part behind numpy.random.seed(n) and numpy.random.randn(): the Mersenne Twister MT19937 and the
// polar method of Marsaglia, which computes two numbers at a time and returns the second one first.
type Random struct {
	key      [624]uint32
	next     int
	hasSpare bool
	spare    float64
}

// NewRandom returns a generator for a seed.
func NewRandom(seed uint32) *Random {
	r := &Random{next: 624}
	for i := range r.key {
		r.key[i] = seed
		seed = 1812433253*(seed^seed>>30) + uint32(i) + 1
	}
	return r
}

func (r *Random) bits() uint32 {
	if r.next == 624 {
		for i := range r.key {
			y := r.key[i]&0x80000000 | r.key[(i+1)%624]&0x7fffffff
			r.key[i] = r.key[(i+397)%624] ^ y>>1 ^ (y&1)*0x9908b0df
		}
		r.next = 0
	}
	y := r.key[r.next]
	r.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// uniform is uniform over [-1, 1), of 53 bits.
func (r *Random) uniform() float64 {
	high, low := r.bits()>>5, r.bits()>>6
	return 2*((float64(high)*67108864+float64(low))/9007199254740992) - 1
}

// Draw draws from a normal distribution.
func (r *Random) Draw() float64 {
	if r.hasSpare {
		r.hasSpare = false
		return r.spare
	}
	for {
		x, y := r.uniform(), r.uniform()
		square := x*x + y*y
		if square >= 1 || square == 0 {
			continue
		}
		factor := math.Sqrt(-2 * math.Log(square) / square)
		r.spare, r.hasSpare = factor*x, true
		return factor * y
	}
}

// Fill draws all elements.
func (r *Random) Fill(to []float32) {
	for i := range to {
		to[i] = float32(r.Draw())
	}
}

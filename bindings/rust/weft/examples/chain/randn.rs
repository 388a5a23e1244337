//! NumPy's legacy generator, the part behind numpy.random.seed(n) and numpy.random.randn(): the Mersenne Twister MT19937 and the polar method of
//! Marsaglia, which computes two numbers at a time and returns the second one first.

pub struct Randn {
    key: [u32; 624],
    next: usize,
    spare: Option<f64>,
}

impl Randn {
    pub fn new(mut seed: u32) -> Randn {
        let mut key = [0; 624];
        for (i, word) in key.iter_mut().enumerate() {
            *word = seed;
            seed = 1812433253u32.wrapping_mul(seed ^ (seed >> 30)).wrapping_add(i as u32 + 1);
        }
        Randn { key, next: 624, spare: None }
    }

    fn bits(&mut self) -> u32 {
        if self.next == 624 {
            for i in 0..624 {
                let y = (self.key[i] & 0x8000_0000) | (self.key[(i + 1) % 624] & 0x7fff_ffff);
                let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.key[i] = self.key[(i + 397) % 624] ^ (y >> 1) ^ odd;
            }
            self.next = 0;
        }
        let mut y = self.key[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// Uniform over [-1, 1), of 53 bits.
    fn uniform(&mut self) -> f64 {
        let (high, low) = (self.bits() >> 5, self.bits() >> 6);
        2.0 * ((f64::from(high) * 67108864.0 + f64::from(low)) / 9007199254740992.0) - 1.0
    }

    pub fn draw(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (self.uniform(), self.uniform());
            let square = x * x + y * y;
            if square < 1.0 && square != 0.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(factor * x);
                return factor * y;
            }
        }
    }
}

/// C's "%.3e": an exponent has at least two digits.
pub fn scientific(value: f64) -> String {
    let text = format!("{value:.3e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap();
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

//! Other bytes with the same XXH3-64, as who wants to serve them would make them; only tests have this.
//!
//! The algorithm reads blocks of 1,024 bytes as 16 stripes of 8 lanes of 64 bits. Of a block it keeps, per
//! lane, the sum of the words and the sum of the products of both halves of `word ^ secret`. So of a lane's
//! 16 words ten can be anything, if the other six bring both sums to where they have to be.

/// The default secret, of which words are taken from here.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

const BLOCK: usize = 1024;
const STRIPE: usize = 64;
/// Stripes of a block that are the attacker's.
const FREE: usize = 10;
const HALF: u64 = u32::MAX as u64;

/// Bytes with the XXH3-64 of `published`, of which most are those of `wanted`, which is as long. What is after
/// the last whole block stays, and so does that block: the algorithm reads the end in another way.
pub fn same_xxh3(published: &[u8], wanted: &[u8]) -> Vec<u8> {
    let mut forged = published.to_vec();
    let blocks = (published.len() - 1) / BLOCK;
    // A last stripe that overlaps the block before the last one would see what changed there.
    let blocks = blocks - usize::from(published.len() - blocks * BLOCK < STRIPE);
    for at in (0..blocks).map(|block| block * BLOCK) {
        for lane in 0..8 {
            forge_lane(&mut forged[at..at + BLOCK], &wanted[at..at + BLOCK], lane);
        }
    }
    forged
}

fn forge_lane(block: &mut [u8], wanted: &[u8], lane: usize) {
    let place = |stripe: usize| stripe * STRIPE + lane * 8;
    let word = |bytes: &[u8], at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let key = |stripe: usize| word(&SECRET, 8 * (stripe + lane));
    let product = |keyed: u64| (keyed & HALF).wrapping_mul(keyed >> 32);
    let (mut sum, mut products) = (0_u64, 0_u64);
    for stripe in 0..16 {
        let old = word(block, place(stripe));
        sum = sum.wrapping_add(old);
        products = products.wrapping_add(product(old ^ key(stripe)));
        if stripe < FREE {
            let new = word(wanted, place(stripe));
            sum = sum.wrapping_sub(new);
            products = products.wrapping_sub(product(new ^ key(stripe)));
            block[place(stripe)..place(stripe) + 8].copy_from_slice(&new.to_le_bytes());
        }
    }
    // Products: what is below bit 31 by a factor of 1, what is above by two factors of 2^31.
    let above = products >> 31;
    let keyed = [
        (products & 0x7fff_ffff) << 32 | 1,
        above.min(HALF) << 32 | 1 << 31,
        (above - above.min(HALF)) << 32 | 1 << 31,
    ];
    let mut put = |stripe: usize, new: u64| {
        block[place(stripe)..place(stripe) + 8].copy_from_slice(&new.to_le_bytes());
        sum = sum.wrapping_sub(new);
        sum
    };
    for (stripe, keyed) in (FREE..).zip(keyed) {
        put(stripe, keyed ^ key(stripe));
    }
    // The sum: its lower half by a word whose upper half, keyed, is zero, its upper half the other way round.
    let left = put(15, key(15));
    let low = left.wrapping_sub(key(14)) & HALF;
    let last = put(13, key(13) >> 32 << 32 | low);
    put(14, last);
}

#[cfg(test)]
mod tests {
    use super::same_xxh3;
    use xxhash_rust::xxh3::xxh3_64;

    #[test]
    fn most_of_the_bytes_can_be_others_with_the_same_digest() {
        for len in [2048_usize, 4096, 4100, 5000, 1023 * 1024] {
            let published: Vec<u8> = (0..len).map(|at| (at * 7 + at / 253) as u8).collect();
            let wanted = vec![0xa5; len];
            let forged = same_xxh3(&published, &wanted);
            assert_eq!(xxh3_64(&forged), xxh3_64(&published), "{len} bytes");
            assert_ne!(forged, published, "{len} bytes");
        }
    }
}

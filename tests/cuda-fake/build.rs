//! Names the shared library as the driver's: loaded once by its path, it is what a later
//! `dlopen("libcuda.so")` of the same process finds.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}

module dslide/tests/ffi

go 1.19

/* Includes only the public header, twice, in C99; the same file is compiled as C++11 and later. */
#include <weft.h>
#include <weft.h>

int main(void) { return 0; }

/* The public header alone, and twice, as a user of C99 meets it; the same file is compiled as C++11 and later. */
#include <weft.h>
#include <weft.h>

int main(void) { return 0; }

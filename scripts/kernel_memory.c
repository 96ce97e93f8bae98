/* What the kernels' module for WebAssembly asks of memory, whose sizes have 64 bits everywhere. */
#include <stdlib.h>

void *kernel_malloc(unsigned long long size) { return malloc(size); }
void kernel_free(void *block) { free(block); }

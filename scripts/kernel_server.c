/* Runs built kernels for a test, as kernel_server.mjs does those of WebAssembly; the calls are the
   same: 64-bit words and bytes, from standard input to standard output. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern int (*const kernels[])(void *);

static void take(void *to, size_t bytes) {
  if (fread(to, 1, bytes, stdin) != bytes) exit(0);
}

int main(void) {
  for (;;) {
    int64_t head[2], count; /* the kernel's number, and how many blocks of memory */
    take(head, sizeof head);
    int64_t blocks = head[1], sizes[blocks];
    take(sizes, sizeof sizes);
    take(&count, 8);
    int64_t(*addresses)[4] = malloc(32 * count + 1);
    take(addresses, 32 * count);
    char *places[blocks];
    for (int64_t i = 0; i < blocks; i++) {
      places[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
      take(places[i], sizes[i]);
    }
    for (int64_t i = 0; i < count; i++) {
      int64_t *one = addresses[i];
      *(int64_t *)(places[one[0]] + one[1]) = (int64_t)(places[one[2]] + one[3]);
    }
    int64_t status = kernels[head[0]](places[0]);
    fwrite(&status, 8, 1, stdout);
    for (int64_t i = 0; i < blocks; i++) {
      fwrite(places[i], 1, sizes[i], stdout);
      free(places[i]);
    }
    free(addresses);
    fflush(stdout);
  }
}

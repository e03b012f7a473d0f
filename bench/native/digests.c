/* digests FILE ...: the XXH3-128 of each file, one a line. As fast as memory is read: checking copies should not be
 * what a bench spends its time on. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static int print_digest(const char *name) {
    struct stat facts;
    int fd = open(name, O_RDONLY);
    if (fd < 0 || fstat(fd, &facts) != 0) {
        fprintf(stderr, "digests: %s: %s\n", name, strerror(errno));
        return 1;
    }
    size_t size = (size_t)facts.st_size;
    void *map = size > 0 ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    if (map == MAP_FAILED) {
        fprintf(stderr, "digests: %s: %s\n", name, strerror(errno));
        return 1;
    }
    XXH128_hash_t hash = XXH3_128bits(map, size);
    printf("%016llx%016llx\n", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    if (map)
        munmap(map, size);
    close(fd);
    return 0;
}

int main(int argc, char **argv) {
    int failures = 0;
    for (int i = 1; i < argc; i++)
        failures += print_digest(argv[i]);
    return failures > 0;
}

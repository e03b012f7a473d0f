/* How much a switch holds. docs/p4.md says what for. */
#ifndef SIZES_P4
#define SIZES_P4

const bit<32> PORTS = 512; // all values of a 9-bit port

const bit<32> UNICAST_ENTRIES = 4096;
const bit<32> GROUP_RANGES = 16;
const bit<32> GRANTS = 4096;
const bit<32> PATHS = 4096; // (ingress port, group) on one switch
const bit<32> LEVELS = 8;
const bit<32> DELIVERIES = 16384; // (path, receiver port) counted; instance 0 is not

const bit<32> WATCHES = 4096; // first light: slots of the registers and entries of the table
const bit<32> DROP_REASONS = 16;

#endif

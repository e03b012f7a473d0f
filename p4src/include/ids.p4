/* Ids in p4info: the control plane's names for what is here. Never given twice, never changed once released.
 * Macros, because annotations take literals. And the numbers that counters and frames are read by.
 */
#ifndef IDS_P4
#define IDS_P4

#define ID_UNICAST 0x02000001
#define ID_GROUP_RANGE 0x02000002
#define ID_ADMISSION 0x02000003
#define ID_MULTICAST 0x02000004
#define ID_PRIORITY_TAGS 0x02000005
#define ID_EGRESS_QUEUES 0x02000006
#define ID_FIRST_LIGHT 0x02000007
#define ID_DISCOVERY 0x02000008

#define ID_FORWARD 0x01000001
#define ID_UNKNOWN_DESTINATION 0x01000002
#define ID_GUARD 0x01000003
#define ID_FOREIGN_GROUP 0x01000004
#define ID_GRANT 0x01000005
#define ID_NO_GRANT 0x01000006
#define ID_REPLICATE 0x01000007
#define ID_NO_PATH 0x01000008
#define ID_TAG 0x01000009
#define ID_LEAVE_TAGS 0x0100000a
#define ID_SET_QUEUES 0x0100000b
#define ID_WATCH 0x0100000c
#define ID_UNWATCHED 0x0100000d
#define ID_HAND_UP 0x0100000e
#define ID_UNWATCHED_PORT 0x0100000f

#define ID_PORT_RECEIVED 0x12000001
#define ID_PORT_SENT_MULTICAST 0x12000002
#define ID_PORT_SENT_UNICAST 0x12000003
#define ID_REFUSED 0x12000004
#define ID_DROPPED 0x12000005
#define ID_DELIVERED 0x12000006
#define ID_CONTROL_EXCESS 0x12000007

#define ID_UNICAST_COUNTER 0x13000001
#define ID_ADMISSION_COUNTER 0x13000002
#define ID_MULTICAST_COUNTER 0x13000003

#define ID_CONTROL_SHARE 0x14000001

#define ID_LIGHT_EPOCH 0x16000001
#define ID_LIGHT_RUN 0x16000002
#define ID_LIGHT_NEXT 0x16000003

/* Why a packet is dropped: the index of counter `dropped`. */
typedef bit<4> reason_t;
const reason_t REASON_NONE = 0;
const reason_t REASON_MALFORMED = 1;
const reason_t REASON_CHECKSUM = 2;
const reason_t REASON_OTHER_FRAME = 3;
const reason_t REASON_UNKNOWN_DESTINATION = 4;
const reason_t REASON_REFUSED = 5;
const reason_t REASON_FOREIGN_GROUP = 6;
const reason_t REASON_NO_PATH = 7;
const reason_t REASON_WAY_BACK = 8;

/* Frames to and from the control plane (packet-in, packet-out). */
const bit<9> CPU_PORT = 510;

/* What agents tell one another, and ARP: the DSCP (CS6) that hosts mark it with, and the level that it has here. */
const bit<6> DSCP_CONTROL = 48;
const bit<3> LEVEL_CONTROL = 6;

/* What a meter says of a packet within its committed rate; or of any, while it has no rates. */
const bit<2> METER_GREEN = 0;

/* What v1model's instance_type is for a copy made by the packet replication engine. */
const bit<32> INSTANCE_REPLICATION = 5;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_LLDP = 0x88cc;
const bit<48> ARP_IPV4_OVER_ETHERNET = 0x0001_0800_0604; // hardware, protocol, and the lengths of their addresses
const bit<8> PROTOCOL_UDP = 17;
const bit<24> ROSTRUM_DATA = 0x535202; // magic 0x5253 as it lies on the wire, version 2
const bit<4> MULTICAST_PREFIX = 0xe;   // 224.0.0.0/4

#endif

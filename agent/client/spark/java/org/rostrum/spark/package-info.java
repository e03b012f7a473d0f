/** Large broadcast values of Apache Spark by rostrum; docs/applications.md says how it is used. */
package org.rostrum.spark;

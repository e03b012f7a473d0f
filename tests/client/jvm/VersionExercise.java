package org.rostrum.spark;

import org.apache.spark.SparkConf;

/** Which Sparks the plugin works with, and what it says to others. */
public final class VersionExercise {
    public static void main(String[] words) {
        SparkConf usual = new SparkConf(false);
        for (String version : new String[] {"3.5.9", "4.0.0", "4.3.1-SNAPSHOT"}) {
            check(said(version, usual).isEmpty());
        }
        for (String version : new String[] {"3.4.4", "3.50.0", "4.9.0", "5.0.0", "", "unknown"}) {
            check(said(version, usual).startsWith("this is Spark " + version + ", and 3.5, 4.0, "));
            check(said(version, usual).endsWith("spark.rostrum.anyVersion=true tries another"));
            check(said(version, new SparkConf(false).set("spark.rostrum.anyVersion", "true")).isEmpty());
        }
        SparkConf secret = new SparkConf(false).set("spark.network.crypto.enabled", "true");
        check(said("4.0.0", secret).startsWith("spark.network.crypto.enabled is set"));
        check(said("4.0.0", secret.set("spark.rostrum.unencrypted", "true")).isEmpty());
        System.out.println("right");
    }

    private static String said(String version, SparkConf conf) {
        try {
            DriverSide.refuseWhatDoesNotFit(version, conf);
            return "";
        } catch (IllegalStateException error) {
            return error.getMessage();
        }
    }

    private static void check(boolean right) {
        if (!right) {
            throw new AssertionError();
        }
    }
}

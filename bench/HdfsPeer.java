// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.HdfsConfiguration;

/** Hadoop's own client beside ours. It does what hdfs_peer.py says on standard input, and answers as that does. */
public class HdfsPeer {
    private static final int PIECE = 4 << 20; // as hdfs_peer.py has it
    private final FileSystem files;
    private final byte[] data;
    private final byte[] buffer = new byte[PIECE];

    private HdfsPeer(Configuration conf, byte[] data) throws IOException {
        this.files = FileSystem.get(conf);
        this.data = data;
    }

    private long read(String path, CRC32 sum) throws IOException {
        long count = 0;
        try (InputStream in = files.open(new Path(path))) {
            for (int got; (got = in.read(buffer, 0, PIECE)) > 0; count += got) {
                if (sum != null) {
                    sum.update(buffer, 0, got);
                }
            }
        }
        return count;
    }

    private long write(String path, long size) throws IOException {
        try (OutputStream out = files.create(new Path(path), true)) {
            for (long at = 0; at < size; at += PIECE) {
                out.write(data, (int) (at % data.length), (int) Math.min(PIECE, size - at));
            }
        }
        return size;
    }

    private long stat(String path, long times) throws IOException {
        Path asked = new Path(path);
        long count = 0;
        while (count < times && files.getFileStatus(asked).isFile()) {
            count++;
        }
        return count;
    }

    private long sum(String path) throws IOException {
        CRC32 sum = new CRC32();
        read(path, sum);
        return sum.getValue();
    }

    private long obey(String[] words) throws IOException {
        switch (words[0]) {
            case "read": return read(words[1], null);
            case "write": return write(words[1], Long.parseLong(words[2]));
            case "stat": return stat(words[1], Long.parseLong(words[2]));
            case "sum": return sum(words[1]);
            default: throw new IOException("there is no command " + words[0]);
        }
    }

    public static void main(String[] args) throws IOException {
        var process = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        var peer = new HdfsPeer(new HdfsConfiguration(), Files.readAllBytes(Paths.get(args[0])));
        var commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null;) {
            long begun = System.nanoTime(), cpu = process.getProcessCpuTime();
            long count = peer.obey(line.split(" "));
            double took = (System.nanoTime() - begun) / 1e9, used = (process.getProcessCpuTime() - cpu) / 1e9;
            System.out.println(took + " " + used + " " + count);
        }
    }
}

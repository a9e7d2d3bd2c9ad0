package org.apache.spark.sql.kafka010

import java.io.{BufferedReader, InputStreamReader}
import java.util.{Collections, Properties, UUID}
import java.util.concurrent.{ExecutionException, Future, TimeUnit}

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin._
import org.apache.kafka.clients.producer.{KafkaProducer, ProducerRecord, RecordMetadata}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.{TopicExistsException, UnknownTopicOrPartitionException}
import org.apache.kafka.common.serialization.StringSerializer
import org.scalatest.Assertions.{assert, cancel, withClue}
import org.scalatest.concurrent.Eventually.{eventually, interval, timeout}
import org.scalatest.time.SpanSugar._

/**
 * Replacement of the class of this name in the connector's test jar, which starts a broker inside the JVM and has to
 * precede that jar on the class path. Here the broker is a process: `ottla.suites.command` (system property, words
 * separated by spaces) is run with the settings on its standard input, writes its address, and ends at the end of its
 * input. Suites that need a KDC are cancelled.
 */
class KafkaTestUtils(settings: Map[String, Object] = Map.empty, secure: Boolean = false) {
  private var broker: Process = _
  private var address: String = _
  private var admin: Admin = _

  def setup(): Unit = {
    if (secure) cancel("a KDC is needed")
    broker = new ProcessBuilder(System.getProperty("ottla.suites.command").split(" "): _*)
      .redirectError(ProcessBuilder.Redirect.INHERIT).start()
    val input = broker.outputWriter()
    brokerConfiguration.forEach {
      // Kafka 4 rejects segments below 1 MiB. The suites that set them want a new segment for each batch.
      case ("log.segment.bytes", size) if size.toString.toInt < (1 << 20) => input.write("log.roll.ms=1\n")
      case (name, value) => input.write(s"$name=$value\n")
    }
    input.write("\n")
    input.flush()
    address = new BufferedReader(new InputStreamReader(broker.getInputStream)).readLine()
    assert(address != null, "the broker did not start")
    admin = Admin.create(Map[String, Object]("bootstrap.servers" -> address).asJava)
  }

  def teardown(): Unit = {
    if (admin != null) admin.close()
    if (broker != null) {
      broker.getOutputStream.close()
      assert(broker.waitFor(60, TimeUnit.SECONDS), "the broker did not stop")
      assert(broker.exitValue() == 0, "the broker failed")
    }
    admin = null
    broker = null
  }

  def brokerAddress: String = { assert(broker != null, "the broker was not started"); address }
  def clientPrincipal: String = cancel("a KDC is needed")
  def clientKeytab: String = cancel("a KDC is needed")

  def brokerConfiguration: Properties = {
    val all = new Properties()
    Seq("offsets.topic.num.partitions", "transaction.state.log.num.partitions").foreach(all.put(_, "1"))
    settings.foreach { case (name, value) => all.put(name, value.toString) }
    all
  }

  // ---- topics

  def createTopic(topic: String): Unit = createTopic(topic, 1)

  def createTopic(topic: String, partitions: Int, overwrite: Boolean = false): Unit = {
    def create(): Unit = get(admin.createTopics(Collections.singleton(new NewTopic(topic, partitions, 1.toShort))).all())
    try create() catch {
      case _: TopicExistsException if overwrite => deleteTopic(topic); create()
      case _: TopicExistsException =>
    }
    waitForPartitions(topic, partitions)
  }

  def deleteTopic(topic: String): Unit = {
    get(admin.deleteTopics(Collections.singleton(topic)).all())
    within("deletion")(assert(!get(admin.listTopics().names()).contains(topic)))
  }

  def addPartitions(topic: String, partitions: Int): Unit = {
    get(admin.createPartitions(Map(topic -> NewPartitions.increaseTo(partitions)).asJava).all())
    waitForPartitions(topic, partitions)
  }

  def getAllTopicsAndPartitionSize(): Seq[(String, Int)] = {
    val names = get(admin.listTopics(new ListTopicsOptions().listInternal(true)).names())
    describe(names.asScala.toSet).map { case (name, topic) => name -> topic.partitions().size }.toSeq
  }

  /** Removes all records, as retention in the broker of the replaced class does at once. */
  def cleanupLogs(): Unit = {
    val ends = getLatestOffsets(get(admin.listTopics().names()).asScala.toSet)
    get(admin.deleteRecords(ends.map { case (at, end) => at -> RecordsToDelete.beforeOffset(end) }.asJava).all())
  }

  private def waitForPartitions(topic: String, partitions: Int): Unit = within("partitions") {
    try assert(describe(Set(topic))(topic).partitions().asScala.count(_.leader() != null) >= partitions)
    catch { case _: UnknownTopicOrPartitionException => assert(false, s"$topic is unknown") }
  }

  private def describe(topics: Set[String]): Map[String, TopicDescription] =
    get(admin.describeTopics(topics.asJava).allTopicNames()).asScala.toMap

  // ---- records

  def sendMessages(topic: String, values: Array[String]): Seq[(String, RecordMetadata)] =
    sendMessages(topic, values, None)

  def sendMessages(topic: String, values: Array[String], partition: Option[Int]): Seq[(String, RecordMetadata)] =
    sendMessages(values.toSeq.map(new ProducerRecord[String, String](topic, partition.map(Int.box).orNull, null, _)))

  def sendMessage(record: ProducerRecord[String, String]): Seq[(String, RecordMetadata)] = sendMessages(Seq(record))

  def sendMessages(records: Array[ProducerRecord[String, String]]): Seq[(String, RecordMetadata)] =
    sendMessages(records.toSeq)

  /** Send records singly: the suites expect a batch for each record, and round robin among partitions without a key. */
  def sendMessages(records: Seq[ProducerRecord[String, String]]): Seq[(String, RecordMetadata)] = {
    val producer = new KafkaProducer[String, String](producerConfiguration)
    try records.map(record => record.value -> get(producer.send(record))) finally producer.close()
  }

  def withTransactionalProducer(use: KafkaProducer[String, String] => Unit): Unit = {
    val configuration = producerConfiguration
    configuration.put("transactional.id", UUID.randomUUID().toString)
    val producer = new KafkaProducer[String, String](configuration)
    try { producer.initTransactions(); use(producer) } finally producer.close()
  }

  private def producerConfiguration: Properties = {
    val all = new Properties()
    all.put("bootstrap.servers", brokerAddress)
    Seq("key.serializer", "value.serializer").foreach(all.put(_, classOf[StringSerializer].getName))
    all.put("acks", "all")
    all.put("partitioner.class", "org.apache.kafka.clients.producer.internals.DefaultPartitioner")
    all
  }

  // ---- offsets and groups

  def getEarliestOffsets(topics: Set[String]): Map[TopicPartition, Long] = offsets(topics, OffsetSpec.earliest())

  def getLatestOffsets(topics: Set[String]): Map[TopicPartition, Long] = offsets(topics, OffsetSpec.latest())

  def waitUntilOffsetAppears(partition: TopicPartition, offset: Long): Unit =
    within("offset")(assert(getLatestOffsets(Set(partition.topic)).get(partition).exists(_ >= offset)))

  def listConsumerGroups(): ListConsumerGroupsResult = admin.listConsumerGroups()

  private def offsets(topics: Set[String], spec: OffsetSpec): Map[TopicPartition, Long] = {
    val partitions = describe(topics).toSeq.flatMap { case (name, topic) =>
      topic.partitions().asScala.map(row => new TopicPartition(name, row.partition()))
    }
    get(admin.listOffsets(partitions.map(_ -> spec).toMap.asJava).all()).asScala.map { case (at, found) =>
      at -> found.offset()
    }.toMap
  }

  private def within(subject: String)(condition: => Unit): Unit =
    withClue(subject)(eventually(timeout(60.seconds), interval(20.millis))(condition))

  private def get[T](future: Future[T]): T =
    try future.get(60, TimeUnit.SECONDS) catch { case failed: ExecutionException => throw failed.getCause }
}
